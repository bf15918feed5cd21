"""What cannot be a window is refused where it is described, in the user's words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from streamcp.errors import DefinitionError, SettingsError
from streamcp.operators.aggregates import Count
from streamcp.operators.windowing.making import make_window_machine, needs_merge
from streamcp.operators.windows import (
    ON_CLOSE,
    Calendar,
    CountWindow,
    Global,
    Session,
    Sliding,
    Tumbling,
    WindowResult,
    early,
    on_each,
)

REFUSED: list[tuple[Any, str]] = [
    (lambda: Tumbling(60), r"Tumbling\(size\)=60 is not a duration"),  # type: ignore[arg-type]
    (lambda: Tumbling("0s"), r"Tumbling\(size\)='0s': write at least 1 ms"),
    (lambda: Tumbling("1.5ms"), r"Tumbling\(size\)='1.5ms': event time is in whole milliseconds"),
    (lambda: Tumbling("1m", offset=5), r"Tumbling\(offset\)=5"),  # type: ignore[arg-type]
    (lambda: Tumbling("1d", timezone="Berlin"), r"Tumbling\(timezone\)='Berlin': no such time"),
    (lambda: Tumbling("1d", timezone=3), r"Tumbling\(timezone\)=3: no such time"),  # type: ignore[arg-type]
    (lambda: Tumbling("6h", timezone="Europe/Berlin"), "a time zone is for windows of whole days"),
    (lambda: Calendar("hour"), r"Calendar\('hour'\): write one of 'day', 'week'"),  # type: ignore[arg-type]
    (lambda: Calendar("month", timezone="x/y"), r"Calendar\(timezone\)='x/y'"),
    (lambda: Sliding("1m", "0s"), r"Sliding\(every\)='0s': write at least 1 ms"),
    (lambda: Sliding("1m", every="2m"), "records between the windows would be in none"),
    (lambda: Session(timedelta(0)), r"Session\(gap\)=.*write at least 1 ms"),
    (lambda: CountWindow(0), r"CountWindow\(n=0\): write a number of records"),
    (lambda: CountWindow("5"), r"CountWindow\(n='5'\)"),  # type: ignore[arg-type]
    (lambda: CountWindow(5, every=0), r"CountWindow\(every=0\)"),
    (lambda: CountWindow(5, every=6), r"CountWindow\(5, every=6\): records between"),
    (lambda: early(every=10), r"early\(every\)=10 is not a duration"),  # type: ignore[arg-type]
    (lambda: early(every="0ms"), r"early\(every\)='0ms': write at least 1 ms"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_value_that_a_setting_cannot_have_is_refused(make: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make()


IMPOSSIBLE: list[tuple[Any, dict[str, Any], str]] = [
    (CountWindow(5), {"emit": early(every="1s")}, "a count window does not know time"),
    (CountWindow(5), {"lateness": 5}, "nothing is late for a count window"),
    (CountWindow(5, every=2), {"emit": on_each()}, "write every=1"),
    ("1m", {}, r"window\('1m'\): write Tumbling, Sliding"),
]


@pytest.mark.parametrize(("windows", "options", "message"), IMPOSSIBLE)
def test_options_that_mean_nothing_for_a_window_are_refused(
    windows: Any, options: dict[str, Any], message: str
) -> None:
    given = {"emit": ON_CLOSE, "lateness": 0, **options}
    with pytest.raises(DefinitionError, match=message):
        make_window_machine(windows, Count(), given["emit"], given["lateness"], "late")


def test_only_windows_made_of_parts_need_a_merge() -> None:
    parts = [Session("5s"), Sliding("10s", "5s"), CountWindow(4, every=2)]
    whole = [Tumbling("1d", timezone="Asia/Tokyo"), Calendar("month"), CountWindow(4), Global()]
    assert [needs_merge(windows) for windows in (*parts, *whole)] == [True] * 3 + [False] * 4


def test_result_tells_key_span_and_value() -> None:
    result = WindowResult("FR", 0, 60_000, 7)
    assert (result.key, result.start, result.end, result.value) == ("FR", 0, 60_000, 7)
