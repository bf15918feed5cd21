"""Rule 15: five origins, the earlier one wins, unknown names are errors everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcp as sc
from streamcp.api.settings import RUN_OPTIONS, merge_settings, read_environment, read_project
from streamcp.config import JobSettings

ORIGINS = ("command line", "run()", "environment", "Job(...)", "[tool.streamcp]")

DEFAULT = JobSettings().channel_capacity


def _merged(*settings: dict[str, Any]) -> JobSettings:
    return merge_settings(*zip(ORIGINS, settings, strict=False))


def test_nothing_set_gives_the_defaults() -> None:
    assert _merged() == JobSettings()
    assert _merged().restart == sc.Restart.none()


@given(st.lists(st.none() | st.integers(1, 9), min_size=5, max_size=5))
def test_first_origin_that_sets_it_wins(values: list[int | None]) -> None:
    merged = _merged(*({"channel_capacity": value} for value in values))
    assert merged.channel_capacity == next((v for v in values if v is not None), DEFAULT)


def test_false_of_a_stronger_origin_wins() -> None:
    assert _merged({"fresh": False}, {"fresh": True}).fresh is False


def test_checkpoints_object_replaces_those_of_weaker_origins() -> None:
    strong, weak = sc.Checkpoints(to="a"), sc.Checkpoints(to="b", every="1s", retain=7)
    assert _merged({"checkpoints": strong}, {"checkpoints": weak}).checkpoints == strong


def test_fields_replace_only_themselves() -> None:
    merged = _merged(
        {"checkpoints": {"mode": "aligned", "every": None}},
        {"checkpoints": "elsewhere"},
        {"checkpoints": sc.Checkpoints(to="here", every="1s")},
    )
    assert merged.checkpoints == sc.Checkpoints(to="elsewhere", every="1s", mode="aligned")


def test_job_with_checkpoints_restarts_three_times() -> None:
    merged = _merged({"checkpoints": Path("here")})
    assert merged.restart == sc.Restart.exponential_backoff(attempts=3)


def test_restart_that_was_set_stays() -> None:
    merged = _merged({"checkpoints": "here", "restart": "none"})
    assert merged.restart == sc.Restart.none()


def test_restart_may_be_a_word_or_a_table() -> None:
    assert _merged({"restart": "fixed_delay"}).restart == sc.Restart.fixed_delay()
    table = {"kind": "failure_rate", "attempts": 2, "interval": "1m"}
    assert _merged({"restart": table}).restart == sc.Restart.failure_rate(attempts=2, interval="1m")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"frsh": True}, "no setting 'frsh'; did you mean 'fresh'"),
    ({"mode": "aligned"}, "write checkpoints.mode, in the environment STREAMCP_CHECKPOINTS_MODE$"),
    ({"to": "here"}, "write checkpoints.to, in the environment STREAMCP_CHECKPOINTS$"),
    ({"checkpoints": {"evry": "1s"}}, r"no setting checkpoints.evry; did you mean 'every'"),
    ({"checkpoints": {"every": "1s"}}, "every is set, but no directory"),
    ({"checkpoints": 5}, "write a directory"),
    ({"checkpoints": {"to": "x", "every": 5}}, "is not a duration"),
    ({"checkpoints": {"to": "x", "mode": "fast"}}, "choose one of"),
    ({"checkpoints": {"to": "x", "retain": "many"}}, "checkpoints.retain='many' is not a whole"),
    ({"checkpoints": {"to": "x", "max_concurrent": 0}}, "write 1 or more"),
    ({"checkpoints": {"to": "x", "max_concurrent": 2}}, "needs mode=\"aligned\".*'adaptive'"),
    (
        {"checkpoints": {"to": "x", "mode": "aligned", "max_concurrent": 2, "min_pause": "1s"}},
        "min_pause='1s' asks for a pause",
    ),
    ({"fresh": "maybe"}, "fresh='maybe' is not true or false"),
    ({"fresh": 1}, "is not true or false"),
    ({"channel_capacity": 0}, "write 1 or more"),
    ({"channel_capacity": "1.5"}, "is not a whole number"),
    ({"restart": "always"}, "choose one of none, fixed_delay"),
    ({"restart": {"attempts": 2}}, "with kind"),
    ({"restart": {"kind": "fixed_delay", "tries": 2}}, "tries"),
    ({"restart": 3}, "choose one of"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_wrong_setting_is_refused_and_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(sc.SettingsError, match=message):
        _merged({}, {}, settings)


def test_error_names_the_origin() -> None:
    with pytest.raises(sc.SettingsError, match=r"^\[tool.streamcp\]: there is no setting"):
        _merged({}, {}, {}, {}, {"x": 1})


def test_environment_is_read_as_text() -> None:
    read = read_environment(
        {
            "STREAMCP_FRESH": "yes",
            "STREAMCP_CHANNEL_CAPACITY": "50",
            "STREAMCP_CHECKPOINTS": "./here",
            "STREAMCP_CHECKPOINTS_EVERY": "10s",
            "STREAMCP_CHECKPOINTS_PREDICT": "off",
            "STREAMCP_CHECKPOINTS_RETAIN": "2",
            "HOME": "/root",
        }
    )
    merged = merge_settings(("environment", read))
    assert (merged.fresh, merged.channel_capacity) == (True, 50)
    assert merged.checkpoints == sc.Checkpoints(to="./here", every="10s", predict=False, retain=2)


def test_environment_without_variables_sets_nothing() -> None:
    assert read_environment({"PATH": "/bin"}) == {}


def test_environment_with_unknown_name_is_an_error() -> None:
    with pytest.raises(sc.SettingsError, match="environment: there is no setting 'frehs'"):
        merge_settings(("environment", read_environment({"STREAMCP_FREHS": "1"})))


def test_nearest_project_file_is_read(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.streamcp]\nchannel_capacity = 7\n[tool.streamcp.checkpoints]\nto = "x"\n'
    )
    assert read_project(inner) == {"channel_capacity": 7, "checkpoints": {"to": "x"}}
    (inner / "pyproject.toml").write_text("[project]\nname = 'y'\n")
    assert read_project(inner) == {}


def test_damaged_project_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.streamcp\n")
    with pytest.raises(sc.SettingsError, match=r"pyproject.toml cannot be read"):
        read_project(tmp_path)


def test_every_setting_of_a_run_is_reserved() -> None:
    assert {"fresh", "checkpoints", "take_over", "help", "json"} <= RUN_OPTIONS
