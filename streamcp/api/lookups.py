"""`lookup`: ask a service for what belongs to a record, and keep the answers for a while. Describes
only, as `streams` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamcp.api.functions import is_lambda, kind_of
from streamcp.api.options import check_call, check_function, check_options, check_plain
from streamcp.api.streams import Opens, Step, Stream, add_node
from streamcp.config import Duration, seconds
from streamcp.errors import DefinitionError
from streamcp.operators.steps import AsyncOptions, LookupStep


def look_up(
    stream: Stream[Any],
    key: Callable[..., Any],
    fetch: Callable[..., Any],
    fn: Callable[..., Any],
    cache: int,
    ttl: Duration | None,
    uses: Opens[Any] | None,
    options: Mapping[str, Any],
) -> Step[Any, Any]:
    """Add a lookup to the graph; see `Stream.lookup`."""
    graph = stream._graph
    check_options("lookup", options, max_parallelism=graph.max_parallelism)
    check_plain("lookup", key, arguments="record")
    check_plain("lookup", fn, arguments="record, answer")
    described = check_function("lookup", fetch)
    if kind_of(fetch) == "plain" and not is_lambda(fetch):
        raise DefinitionError(
            f"{described} is a plain function: what is asked of a service is awaited; write async "
            "def, or look it up in the function of a map"
        )
    if type(cache) is not int or cache < 1:
        raise DefinitionError(
            f"lookup(cache={cache!r}): write how many answers are kept, 1 or more; to ask for each "
            "record write map"
        )
    # A coroutine function even if it is a lambda, which is told by having an option of one.
    given = {"concurrency": AsyncOptions().concurrency, **options}
    called = check_call("lookup", fetch, given, uses=uses, arguments="key")
    spec = LookupStep(
        fetch,
        called.calls,
        called.uses,
        called.on_error,
        key=key,
        combine=fn,
        cache=cache,
        ttl=_lifetime(ttl),
        annotated=(key, fn),
    )
    return Step(graph, add_node(graph, spec, stream._connections, options))


def _lifetime(ttl: Duration | None) -> float | None:
    if ttl is None:
        return None
    lifetime = seconds(ttl, setting="lookup(ttl)")
    if lifetime == 0:
        raise DefinitionError(
            f"lookup(ttl={ttl!r}) would keep no answer; to ask for each record write map, to keep "
            "answers for good ttl=None"
        )
    return lifetime
