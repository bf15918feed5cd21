"""The keyword options of a step: their types for editors, their checks at definition.

One table says which verb has which option; whatever is wrong is a `DefinitionError` (or, for a
value that no duration can have, a `SettingsError`) at the line that describes the step.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, get_args

from streamcp.api.functions import Kind, accepts, is_lambda, kind_of, name_of
from streamcp.config import CircuitBreaker, Duration, Rate, Retry, seconds
from streamcp.errors import DefinitionError
from streamcp.operators.steps import AsyncOptions, Executor, OnError, Opener
from streamcp.operators.ttl import Ttl


class StepOptions(TypedDict, total=False):
    """Options that every step has."""

    name: str | None
    parallelism: int | None


class PlainOptions(StepOptions, total=False):
    """Options of a step that calls a plain function."""

    on_error: OnError


class KeyedOptions(PlainOptions, total=False):
    """Options of a step that calls a plain function with a state per key."""

    ttl: Duration | Ttl | None


class SinkOptions(PlainOptions, total=False):
    """Options of a sink that may write again."""

    retry: Retry | None


class CalledOptions(PlainOptions, total=False):
    """Options of a step that calls a coroutine function."""

    concurrency: int
    timeout: Duration | None
    retry: Retry | None
    rate: Rate | Sequence[Rate] | None
    breaker: CircuitBreaker | None


class LookupOptions(CalledOptions, total=False):
    """Options of a step whose calls only ask."""

    ordered: bool


class PooledOptions(CalledOptions, total=False):
    """Options of a step that calls a coroutine function and fixes the order itself."""

    journal: bool


class KeyedPooledOptions(PooledOptions, total=False):
    """The same of a coroutine function."""

    ttl: Duration | Ttl | None


class AsyncCallOptions(PooledOptions, total=False):
    """Options of a step that calls a coroutine function per record."""

    ordered: bool


_STEP = frozenset(StepOptions.__annotations__)
_PLAIN = frozenset(PlainOptions.__annotations__)
_SINK = frozenset(SinkOptions.__annotations__)
_POOLED = frozenset(PooledOptions.__annotations__) | {"executor"}
_LOOKUP = frozenset(LookupOptions.__annotations__)
_ASYNC_CALL = frozenset(AsyncCallOptions.__annotations__) | {"executor"}
ALLOWED: Mapping[str, frozenset[str]] = {
    "source": _STEP,
    "map": _ASYNC_CALL,
    "filter": _ASYNC_CALL,
    "flat_map": _ASYNC_CALL,
    "for_each": _POOLED,
    "lookup": _LOOKUP,
    "batch": _STEP,
    "unbatch": _STEP,
    "inspect": _PLAIN,
    "branch": _STEP,
    "iterate": _STEP,
    "process": _POOLED | {"ttl"},
    "reduce": _STEP,
    "scan": _STEP,
    "count": _STEP,
    "window": _STEP,
    "join": _STEP,
    "join_asof": _STEP,
    "top": _STEP,
    "deduplicate": _STEP,
    "sink": _SINK,
}
_ONLY_ASYNC = ("concurrency", "ordered", "timeout", "retry", "rate", "breaker", "journal")
# How the function of a keyed step is called; errors show it.
KEYED = "record, state, context"
_YIELDING = ("flat_map", "process")


@dataclass(frozen=True, slots=True)
class Called:
    """The checked parts of a step that calls a user's function."""

    calls: AsyncOptions | None
    uses: Opener | None
    on_error: OnError


def check_options(verb: str, options: Mapping[str, Any], *, max_parallelism: int) -> None:
    """Check the names of all options, and the values of those that every step has."""
    for name in options:
        if name not in ALLOWED[verb]:
            raise DefinitionError(
                f"{verb}() has no option {name!r}{did_you_mean(name, ALLOWED[verb])}"
            )
    own_name = options.get("name")
    if own_name is not None and (not isinstance(own_name, str) or not own_name.strip()):
        raise DefinitionError(f"{verb}(name={own_name!r}): a name is a text that is not empty")
    check_parallelism(verb, options.get("parallelism"), max_parallelism)
    on_error = options.get("on_error", "fail")
    if on_error not in get_args(OnError):
        raise DefinitionError(
            f"{verb}(on_error={on_error!r}): choose one of {', '.join(get_args(OnError))}"
        )


def check_parallelism(verb: str, parallelism: Any, max_parallelism: int) -> None:
    """Refuse what is not a number from 1 to `max_parallelism`."""
    if parallelism is None:
        return
    if type(parallelism) is not int or not 1 <= parallelism <= max_parallelism:
        raise DefinitionError(
            f"{verb}(parallelism={parallelism!r}): write a number from 1 to {max_parallelism}, "
            "the job's max_parallelism"
        )


def check_call(
    verb: str,
    fn: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    uses: Opener | None = None,
    arguments: str = "record",
) -> Called:
    """Decide how `fn` is called with `arguments`, and the service of `uses`, if given."""
    described = check_function(verb, fn)
    _check_opener(described, uses)
    _check_arity(described, fn, arguments, uses)
    kind = kind_of(fn)
    if "generator" in kind and verb not in _YIELDING:
        raise DefinitionError(
            f"{described} is a generator function, but {verb} takes one result per record; "
            f"write {'for_each with a function that returns' if verb == 'for_each' else 'flat_map'}"
        )
    calls = _async_options(described, fn, kind, options)
    if calls is not None and calls.executor == "process":
        _check_process(verb, described, uses)
    return Called(calls, uses, options.get("on_error", "fail"))


def check_function(verb: str, fn: object) -> str:
    """Refuse what cannot be called; return how errors name it."""
    if not callable(fn):
        raise DefinitionError(f"{verb}({fn!r}): a function is needed, not a value")
    return f"{verb}({name_of(fn)})"


def check_plain(
    verb: str, fn: Callable[..., Any], *, arguments: str, generators: bool = False
) -> None:
    """Refuse coroutine functions where a verb calls its function inline only; `generators`: the
    function may be one that yields."""
    described = check_function(verb, fn)
    if kind_of(fn) != "plain" and not (generators and kind_of(fn) == "generator"):
        raise DefinitionError(
            f"{described} is a {kind_of(fn)} function, but {verb} takes a plain function that "
            "returns; do the asynchronous part in a map before it"
        )
    _check_arity(described, fn, arguments, None, takes_service=False)


def check_timer(
    described: str,
    on_timer: Callable[..., Any],
    called: Called,
    *,
    arguments: str = "timestamp, state, context",
) -> None:
    """Refuse an `on_timer` that cannot be called as its step calls it."""
    timer = f"{described}: on_timer={name_of(on_timer)}"
    if not callable(on_timer):
        raise DefinitionError(f"{timer} is no function")
    _check_arity(timer, on_timer, arguments, called.uses)
    inline = called.calls is None or called.calls.executor is not None
    if inline and kind_of(on_timer) in ("coroutine", "async generator"):
        raise DefinitionError(
            f"{timer} is a coroutine function, but the step's own function is plain; write both "
            "with async def"
        )


def did_you_mean(word: str, known: frozenset[str] | Mapping[str, object]) -> str:
    """Suggest the nearest known word, or list them all."""
    near = difflib.get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(sorted(known))}"


def _async_options(
    described: str, fn: Callable[..., Any], kind: Kind, options: Mapping[str, Any]
) -> AsyncOptions | None:
    given = [*_given(options)]
    if options.get("executor") is not None:
        _check_executor(described, kind, options["executor"])
    elif kind in ("plain", "generator"):
        if not given:
            return None
        # A lambda may well return a coroutine: the option says so (rule 2).
        if not is_lambda(fn):
            raise DefinitionError(
                f"{described} is a plain function: {given[0]}= is for coroutine functions; "
                f"write async def, or leave {given[0]}= out"
            )
    return _checked_async(described, options)


def _given(options: Mapping[str, Any]) -> Iterator[str]:
    """Name the options of calls that are given, with more than what they are without."""
    for name in _ONLY_ASYNC:
        if options.get(name) is not None and (name, options[name]) != ("journal", False):
            yield name


def _check_executor(described: str, kind: Kind, executor: Any) -> None:
    if executor not in get_args(Executor):
        choices = ", ".join(map(repr, get_args(Executor)))
        raise DefinitionError(f"{described}: executor={executor!r}, write {choices}")
    if kind not in ("plain", "generator"):
        raise DefinitionError(
            f"{described} is a {kind} function: executor= is for plain functions; write def, or "
            "leave executor= out"
        )


def _check_process(verb: str, described: str, uses: Opener | None) -> None:
    """Refuse in another process what lives in this one."""
    thread = 'write executor="thread"'
    if verb == "process":
        raise DefinitionError(
            f"{described}: the state of a key lives in one process; {thread}, or compute in a "
            'map(..., executor="process") before it'
        )
    if uses is not None:
        raise DefinitionError(
            f"{described}: the service of uses= lives in one process; {thread}, or open what is "
            "needed in the function"
        )


def refuse_async_options(verb: str, options: Mapping[str, Any], reason: str) -> None:
    """Refuse the options of calls that are not made inline."""
    executor = ("executor",) if options.get("executor") is not None else ()
    for name in (*_given(options), *executor):
        raise DefinitionError(f"{verb}({name}=): {reason}; leave {name}= out")


def _checked_async(described: str, options: Mapping[str, Any]) -> AsyncOptions:
    concurrency = options.get("concurrency", AsyncOptions().concurrency)
    if type(concurrency) is not int or concurrency < 1:
        raise DefinitionError(f"{described}: concurrency={concurrency!r}, write 1 or more")
    retry = options.get("retry")
    if retry is not None and not isinstance(retry, Retry):
        raise DefinitionError(f"{described}: retry={retry!r}, write Retry(attempts=3)")
    breaker = options.get("breaker")
    if breaker is not None and not isinstance(breaker, CircuitBreaker):
        raise DefinitionError(f"{described}: breaker={breaker!r}, write CircuitBreaker()")
    journal = options.get("journal", False)
    if type(journal) is not bool:
        raise DefinitionError(f"{described}: journal={journal!r}, write journal=True")
    return AsyncOptions(
        concurrency=concurrency,
        ordered=options.get("ordered") is not False,
        timeout=_timeout(described, options.get("timeout")),
        retry=retry,
        rates=_rates(described, options.get("rate")),
        breaker=breaker,
        executor=options.get("executor"),
        journal=journal,
    )


def _rates(described: str, rate: Any) -> tuple[Rate, ...]:
    rates = () if rate is None else (rate,) if isinstance(rate, Rate) else rate
    if not isinstance(rates, Sequence) or not all(isinstance(one, Rate) for one in rates):
        raise DefinitionError(
            f'{described}: rate={rate!r}, write Rate(100, per="1s"), or a list of such'
        )
    if sum(one.key is not None for one in rates) > 1:
        raise DefinitionError(
            f"{described}: only one of the rates may have a key=; let its function return a tuple, "
            "or divide the calls into two steps"
        )
    return tuple(rates)


def _timeout(described: str, timeout: Duration | None) -> float | None:
    if timeout is None:
        return None
    value = seconds(timeout, setting=f"{described}: timeout")
    if value == 0:
        raise DefinitionError(f"{described}: timeout={timeout!r} would end every call at once")
    return value


def _check_opener(described: str, uses: Opener | None) -> None:
    if uses is None:
        return
    if not callable(uses):
        remedy = "give the class or function that opens it, not the opened service"
    elif kind_of(uses) != "plain":
        remedy = "decorate it with @contextlib.asynccontextmanager"
    elif not accepts(uses, 0):
        remedy = "it must need no arguments: wrap it, uses=lambda: ..."
    else:
        return
    raise DefinitionError(f"{described}: uses={name_of(uses)} opens no service; {remedy}")


def _check_arity(
    described: str,
    fn: Callable[..., Any],
    arguments: str,
    uses: Opener | None,
    *,
    takes_service: bool = True,
) -> None:
    """`arguments` are written as errors show them: "record, state"."""
    service = [] if uses is None else [f"the service of uses={name_of(uses)}"]
    wanted = [*filter(None, arguments.split(", ")), *service]
    if accepts(fn, len(wanted)):
        return
    lacks_service = takes_service and uses is None and accepts(fn, len(wanted) + 1)
    raise DefinitionError(
        f"{described} is called as {name_of(fn)}({', '.join(wanted)}), which it does not accept"
        + ("; give its service with uses=" if lacks_service else "")
    )
