"""From what the user said of windows to the machine that works them.

Refuses what cannot be together; the messages name the words of the user.
"""

from __future__ import annotations

from typing import Any

from streamcp.errors import DefinitionError
from streamcp.operators.aggregates import Aggregate
from streamcp.operators.windowing.counts import CountMachine
from streamcp.operators.windowing.grids import (
    DayGrid,
    FixedGrid,
    GlobalGrid,
    Grid,
    calendar_grid,
)
from streamcp.operators.windowing.machine import WindowMachine
from streamcp.operators.windowing.panes import PaneMachine
from streamcp.operators.windowing.sessions import SessionMachine
from streamcp.operators.windowing.slices import SliceMachine
from streamcp.operators.windows import (
    DAY_MS,
    Calendar,
    CountWindow,
    Emit,
    Global,
    Session,
    Sliding,
    Tumbling,
    Windows,
    whole_ms,
    zone,
)

_KINDS = (Tumbling, Sliding, Session, Calendar, CountWindow, Global)


def make_window_machine(
    windows: Windows, aggregate: Aggregate[Any, Any], emit: Emit, lateness: int, late: Any
) -> WindowMachine:
    """Make the machine that works `windows`; `lateness` is in milliseconds, `late` the tag to which
    late records go.

    Raises what `check_windows` raises."""
    check_windows(windows, emit, lateness)
    if isinstance(windows, CountWindow):
        every = windows.n if windows.every is None else windows.every
        return CountMachine(windows.n, every, aggregate, emit, late)
    if isinstance(windows, Session):
        gap = whole_ms(windows.gap, setting="Session(gap)")
        return SessionMachine(gap, aggregate, emit, lateness, late)
    if isinstance(windows, Sliding):
        size = whole_ms(windows.size, setting="Sliding(size)")
        every = whole_ms(windows.every, setting="Sliding(every)")
        offset = whole_ms(windows.offset, setting="Sliding(offset)")
        if every < size:
            return SliceMachine(size, every, offset, aggregate, emit, lateness, late)
        return PaneMachine(FixedGrid(size, offset), aggregate, emit, lateness, late)
    return PaneMachine(_grid(windows), aggregate, emit, lateness, late)


def check_windows(windows: Windows, emit: Emit, lateness: int) -> None:
    """Raise DefinitionError for what is no kind of window, and where `emit` or `lateness` mean
    nothing for it."""
    if not isinstance(windows, _KINDS):
        names = ", ".join(kind.__name__ for kind in _KINDS[:-1])
        raise DefinitionError(f"window({windows!r}): write {names} or {_KINDS[-1].__name__}")
    if isinstance(windows, CountWindow):
        _check_count(windows, emit, lateness)


def needs_merge(windows: Windows) -> bool:
    """Say whether values of these windows are merged of parts."""
    if isinstance(windows, CountWindow):
        return windows.every is not None and windows.every < windows.n
    return isinstance(windows, Session | Sliding)


def needs_time(windows: Windows, emit: Emit) -> bool:
    """Say whether these windows mean nothing on a stream without event time."""
    if isinstance(windows, Global):
        return emit.kind != "on_each"
    return not isinstance(windows, CountWindow)


def _grid(windows: Windows) -> Grid:
    if isinstance(windows, Global):
        return GlobalGrid()
    if isinstance(windows, Calendar):
        return calendar_grid(windows.unit, zone(windows.timezone, setting="Calendar(timezone)"))
    assert isinstance(windows, Tumbling)
    size = whole_ms(windows.size, setting="Tumbling(size)")
    offset = whole_ms(windows.offset, setting="Tumbling(offset)")
    if windows.timezone is None:
        return FixedGrid(size, offset)
    where = zone(windows.timezone, setting="Tumbling(timezone)")
    return DayGrid(where, size // DAY_MS, offset)


def _check_count(windows: CountWindow, emit: Emit, lateness: int) -> None:
    if emit.kind == "early":
        raise DefinitionError(
            f"window({windows!r}, emit=early(...)): a count window does not know time; write a "
            "smaller n, or emit=on_each()"
        )
    if emit.kind == "on_each" and needs_merge(windows):
        raise DefinitionError(
            f"window({windows!r}, emit=on_each()): write every=1, which emits with each record"
        )
    if lateness:
        raise DefinitionError(
            f"window({windows!r}, allowed_lateness=...): nothing is late for a count window; "
            "leave it out"
        )
