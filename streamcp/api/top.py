"""`top`: the best of the window results of all keys. Describes only, as `streams` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamcp.api.options import check_options, check_plain
from streamcp.api.streams import Stream, add_node
from streamcp.api.windows import Division, Windowed
from streamcp.errors import DefinitionError
from streamcp.graph.logical import Connection
from streamcp.operators.steps import TopStep
from streamcp.operators.windowing.top import TopOnce, TopRefined
from streamcp.operators.windows import CountWindow, Session, WindowResult


def top_of(
    results: Windowed[Any, Any, Any],
    division: Division,
    n: int,
    by: Callable[..., Any],
    per: Callable[..., Any] | None,
    options: Mapping[str, Any],
) -> Stream[Any]:
    """Add a step of the best results to the graph; see `Windowed.top`."""
    check_options("top", options, max_parallelism=results._graph.max_parallelism)
    if type(n) is not int or n < 1:
        raise DefinitionError(f"top({n!r}): write a number of results, 1 or more")
    check_plain("top", by, arguments="result")
    if per is not None:
        check_plain("top", per, arguments="result")
    if isinstance(division.windows, Session | CountWindow):
        raise DefinitionError(
            f"top({n}) of {division.windows!r}: each key has windows of its own, in which no other "
            "key has a result; write windows that all keys share, e.g. Tumbling, Sliding, Calendar"
        )
    machine = TopRefined(n, by, division.lateness) if division.refined else TopOnce(n, by)
    spec = TopStep(
        machine.fn,
        state=machine.state,
        on_timer=machine.on_timer,
        annotated=(by,) if per is None else (by, per),
    )
    keyed = results.key_by(_of_window(per))
    node = add_node(results._graph, spec, keyed._connections, options)
    return Stream(results._graph, (Connection(node),))


def _of_window(per: Callable[..., Any] | None) -> Callable[..., Any]:
    """Make the key of the step: (group, start, end)."""

    def window_of(result: WindowResult[Any, Any]) -> tuple[Any, int, int]:
        return None if per is None else per(result), result.start, result.end

    return window_of
