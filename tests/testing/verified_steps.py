"""A case for each step that needs no event time: what it is given, and what must come out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import streamcp as sc
from streamcp.elements import EndOfInput
from streamcp.testing.given import Advance, On


@dataclass(frozen=True)
class Case:
    """A step and how it is verified; `options` are those of `verify_operator`."""

    name: str
    add: Callable[..., sc.Stream[Any]]
    given: list[Any]
    expected: list[Any]
    options: dict[str, Any]


def case(
    name: str,
    add: Callable[..., sc.Stream[Any]],
    given: list[Any],
    expected: list[Any],
    **options: Any,
) -> Case:
    return Case(name, add, given, expected, options)


@dataclass
class Sum:
    total: int = 0
    seen: list[int] = field(default_factory=list)


def by_first(record: tuple[Any, ...]) -> Any:
    return record[0]


def by_parity(number: int) -> int:
    return number % 2


# ---- functions of one record


async def slowly(number: int) -> int:
    """Take the longer, the larger the number."""
    await asyncio.sleep(number)
    return -number


def refuse_two(number: int) -> int:
    if number == 2:
        raise ValueError("two")
    return number


async def refuse_two_slowly(number: int) -> int:
    await asyncio.sleep(1)
    return refuse_two(number)


async def is_odd_slowly(number: int) -> bool:
    await asyncio.sleep(number)
    return number % 2 == 1


def twice(number: int) -> Iterator[int]:
    yield number
    yield -number


async def twice_slowly(number: int) -> AsyncIterator[int]:
    await asyncio.sleep(number)
    yield number
    yield -number


def nothing_or_many(number: int) -> list[int] | None:
    return [number] * number if number else None


@asynccontextmanager
async def open_ten() -> AsyncIterator[int]:
    yield 10


async def add_service(number: int, service: int) -> int:
    await asyncio.sleep(1)
    return number + service


def failed_records(step: sc.Step[Any, Any] | sc.SinkStep[Any]) -> sc.Stream[Any]:
    return step.errors.map(lambda failure: (failure.record, failure.error))


async def write_but_two(records: list[int]) -> None:
    if 2 in records:
        raise ValueError("two")


GONE = [(2, "ValueError: two")]

PLAIN = [
    case("map", lambda s: s.map(lambda n: n + 1), [1, 2, 3], [2, 3, 4]),
    case("map, dropping", lambda s: s.map(refuse_two, on_error="drop"), [1, 2, 3], [1, 3]),
    case(
        "map, diverting",
        lambda s: failed_records(s.map(refuse_two, on_error="divert")),
        [1, 2, 3],
        GONE,
    ),
    case("filter", lambda s: s.filter(lambda n: n % 2), [1, 2, 3], [1, 3]),
    case("flat_map", lambda s: s.flat_map(twice), [1, 2, 3], [1, -1, 2, -2, 3, -3]),
    case("flat_map, many", lambda s: s.flat_map(nothing_or_many), [0, 3, 0, 1], [3, 3, 3, 1]),
    case(
        "for_each, diverting",
        lambda s: failed_records(s.for_each(refuse_two, on_error="divert")),
        [1, 2, 3],
        GONE,
    ),
    case(
        "sink, diverting",
        lambda s: failed_records(s.sink(write_but_two, on_error="divert")),
        [1, 2, 3],
        GONE,
        seeds=(),
    ),
    case("inspect", lambda s: s.inspect(str), [1, 2], [1, 2]),
    case("tap", lambda s: s.tap(lambda t: t.sink(sc.discard(), name="x")), [1, 2], [1, 2]),
    case("rebalance", lambda s: s.rebalance(), [1, 2, 3], [1, 2, 3]),
    case(
        "branch",
        lambda s: s.branch(lambda n: n % 2)[0].map(lambda n: ("odd", n)),
        [1, 2, 3],
        [("odd", 1), ("odd", 3)],
    ),
    case(
        "branch, other side",
        lambda s: s.branch(lambda n: n % 2)[1].map(lambda n: ("even", n)),
        [1, 2, 4],
        [("even", 2), ("even", 4)],
    ),
    case("union", lambda a, b: a.union(b), [1, On(1, 2), 3], [1, 2, 3], inputs=2),
    case(
        "union, one input ends",
        lambda a, b: a.union(b),
        [1, On(1, EndOfInput()), 3],
        [1, 3],
        inputs=2,
    ),
    case(
        "batch",
        lambda s: s.batch(2, "10s", name="batch"),
        [1, 2, 3, Advance("10s"), 4],
        [[1, 2], [3], [4]],
        rescale=False,
    ),
    case("unbatch", lambda s: s.unbatch(), [[1, 2], [], [3]], [1, 2, 3]),
    case(
        "iterate",
        lambda s: s.iterate(lambda loop: loop.map(lambda n: n // 2).branch(lambda n: n > 2)),
        [20, 3, 9],
        [2, 1, 2],
        order="any",
    ),
    case(
        "iterate with a coroutine",
        lambda s: s.iterate(
            lambda loop: loop.map(slowly, name="slowly").branch(lambda n: n > 0), name="loop"
        ),
        [3, 1],
        [-1, -3],
        order="any",
    ),
]

COROUTINES = [
    case("map of a coroutine", lambda s: s.map(slowly), [3, 1, 2], [-3, -1, -2]),
    case(
        "lookup",
        lambda s: s.lookup(lambda n: n % 3, slowly, lambda n, answer: (n, answer), ttl="5s"),
        [2, 1, 5, 2, Advance("9s"), 4, 3],
        [(2, -2), (1, -1), (5, -2), (2, -2), (4, -1), (3, 0)],
    ),
    case(
        "lookup, unordered, one at a time, for two answers",
        lambda s: s.lookup(
            lambda n: n % 4,
            slowly,
            lambda n, answer: (n, answer),
            cache=2,
            ordered=False,
            concurrency=1,
        ),
        [3, 1, 7, 2, 3, 1],
        [(3, -3), (1, -1), (7, -3), (2, -2), (3, -3), (1, -1)],
        order="any",
    ),
    case(
        "lookup that fails for all that wait",
        lambda s: failed_records(
            s.lookup(
                lambda n: n % 3,
                refuse_two_slowly,
                lambda n, answer: answer,
                on_error="divert",
            )
        ),
        [2, 1, 5, 3],
        [(2, "ValueError: two"), (5, "ValueError: two")],
        order="any",
    ),
    case(
        "map of a coroutine, unordered",
        lambda s: s.map(slowly, ordered=False),
        [3, 1, Advance("2s"), 1],
        [-1, -3, -1],
        order="any",
    ),
    case(
        "map of a coroutine, one at a time",
        lambda s: s.map(slowly, concurrency=1),
        [2, 1],
        [-2, -1],
    ),
    case(
        "map of a coroutine, diverting",
        lambda s: failed_records(s.map(refuse_two_slowly, on_error="divert")),
        [1, 2],
        GONE,
    ),
    case(
        "map of a coroutine, timed out and tried again",
        lambda s: s.map(slowly, timeout="2s", retry=sc.Retry(2, "1s", jitter=0.0), on_error="drop"),
        [1, 3, 1],
        [-1, -1],
    ),
    case(
        "map of a coroutine, limited and guarded",
        lambda s: s.map(
            refuse_two_slowly, rate=sc.Rate(1), breaker=sc.CircuitBreaker(1), on_error="drop"
        ),
        [1, 2, 3],
        [1, 3],
        seeds=(0,),
    ),
    case(
        "map with a service",
        lambda s: s.map(add_service, uses=open_ten),
        [1, 2],
        [11, 12],
        services={open_ten: open_ten},
    ),
    case(
        "map of a coroutine with a journal",
        lambda s: s.map(slowly, journal=True),
        [2, Advance("1s"), 1, Advance("1s"), 3],
        [-2, -1, -3],
        seeds=(0,),
    ),
    case("map in a thread", lambda s: s.map(abs, executor="thread"), [-1, -2], [1, 2], seeds=(0,)),
    case("map in a process", lambda s: s.map(abs, executor="process"), [-1], [1], seeds=(0,)),
    case("filter by a coroutine", lambda s: s.filter(is_odd_slowly), [3, 2, 1], [3, 1]),
    case("flat_map of a coroutine", lambda s: s.flat_map(twice_slowly), [2, 1], [2, -2, 1, -1]),
    case(
        "for_each of a coroutine, diverting",
        lambda s: failed_records(s.for_each(refuse_two_slowly, on_error="divert")),
        [1, 2],
        GONE,
    ),
]


# ---- keys


def add(number: int, state: Sum, ctx: sc.KeyContext[int]) -> list[tuple[int, int]]:
    state.total += number
    return [(ctx.key, state.total)]


async def add_slowly(number: int, state: Sum, ctx: sc.KeyContext[int]) -> list[tuple[int, int]]:
    await asyncio.sleep(number)
    return add(number, state, ctx)


ODD = sc.Tag[tuple[int, int]]("odd")


def add_aside(number: int, state: Sum, ctx: sc.KeyContext[int]) -> None:
    state.total += number
    ctx.emit_to(ODD, (ctx.key, state.total))


def collect_for_a_while(number: int, state: Sum, ctx: sc.KeyContext[int]) -> None:
    if not state.seen:
        ctx.set_timer(after="10s")
    state.seen.append(number)


def give_back(timestamp: int, state: Sum, ctx: sc.KeyContext[int]) -> list[tuple[int, list[int]]]:
    seen, state.seen = state.seen, []
    return [(ctx.key, seen)]


async def collect_slowly(number: int, state: Sum, ctx: sc.KeyContext[int]) -> None:
    await asyncio.sleep(1)
    collect_for_a_while(number, state, ctx)


async def give_back_slowly(
    timestamp: int, state: Sum, ctx: sc.KeyContext[int]
) -> list[tuple[int, list[int]]]:
    await asyncio.sleep(1)
    return give_back(timestamp, state, ctx)


def keyed(stream: sc.Stream[int]) -> sc.KeyedStream[int, int]:
    return stream.key_by(by_parity)


NUMBERS = [1, 2, 3, 4, 1]
TOTALS = [(1, 1), (0, 2), (1, 4), (0, 6), (1, 5)]
IN_TIME = [1, 3, Advance("5s"), 2, Advance("5s"), 5, Advance("20s")]
COLLECTED = [(1, [1, 3]), (0, [2]), (1, [5])]

KEYED = [
    case("count", lambda s: keyed(s).count(), NUMBERS, [(1, 1), (0, 1), (1, 2), (0, 2), (1, 3)]),
    case(
        "reduce",
        lambda s: keyed(s).reduce(lambda a, b: a + b),
        NUMBERS,
        [1, 2, 4, 6, 5],
        order="any",
    ),
    case(
        "scan",
        lambda s: keyed(s).scan(lambda: (0, 0), lambda pair, n: (n % 2, pair[1] + n)),
        NUMBERS,
        TOTALS,
        order=by_first,
    ),
    case("process", lambda s: keyed(s).process(add, state=Sum), NUMBERS, TOTALS, order=by_first),
    case(
        "process, expiring",
        lambda s: keyed(s).process(add, state=Sum, ttl="10s"),
        [1, Advance("5s"), 3, Advance("20s"), 5],
        [(1, 1), (1, 4), (1, 5)],
        order=by_first,
    ),
    case(
        "process of a coroutine",
        lambda s: keyed(s).process(add_slowly, state=Sum),
        NUMBERS,
        TOTALS,
        order=by_first,
    ),
    case(
        "process with timers",
        lambda s: keyed(s).process(collect_for_a_while, state=Sum, on_timer=give_back),
        IN_TIME,
        COLLECTED,
        order=by_first,
    ),
    case(
        "process of a coroutine with timers",
        lambda s: keyed(s).process(collect_slowly, state=Sum, on_timer=give_back_slowly),
        [1, 3, Advance("5s"), 2, Advance("8s"), 5, Advance("30s")],
        COLLECTED,
        order=by_first,
    ),
    case(
        "process with a side output",
        lambda s: keyed(s).process(add_aside, state=Sum).side(ODD),
        NUMBERS,
        TOTALS,
        order=by_first,
    ),
    case(
        "deduplicate",
        lambda s: s.key_by(abs).deduplicate(),
        [1, -1, 2, 1, -2],
        [1, 2],
    ),
    case(
        "deduplicate within a time",
        lambda s: s.key_by(abs).deduplicate(within="10s"),
        [1, -1, Advance("9s"), -1, Advance("2s"), -1],
        [1, -1],
    ),
]


# ---- two inputs


def subtract(number: int, state: Sum, ctx: sc.KeyContext[int]) -> list[tuple[int, int]]:
    return add(-number, state, ctx)


async def subtract_slowly(
    number: int, state: Sum, ctx: sc.KeyContext[int]
) -> list[tuple[int, int]]:
    return await add_slowly(number, state, ctx)


def times_factor(number: int, shared: Sum) -> list[int]:
    return [number * shared.total]


def set_factor(number: int, shared: Sum) -> None:
    shared.total = number


def times_factor_of_all(
    number: int, state: Sum, shared: Sum, ctx: sc.KeyContext[int]
) -> list[tuple[int, int]]:
    state.total += number
    ctx.set_timer(after="10s")
    return [(ctx.key, state.total * shared.total)]


def set_factor_of_all(number: int, shared: Sum, ctx: sc.BroadcastContext[int, Sum]) -> None:
    shared.total = number


def tell_factor(
    timestamp: int, state: Sum, shared: Sum, ctx: sc.KeyContext[int]
) -> list[tuple[int, int]]:
    return [(ctx.key, shared.total)]


TWO_INPUTS = [
    case(
        "connect of keyed streams",
        lambda a, b: keyed(a).connect(keyed(b)).process(add, subtract, state=Sum),
        [5, On(1, 1), On(1, 2), 4],
        [(1, 5), (1, 4), (0, -2), (0, 2)],
        inputs=2,
        order=by_first,
    ),
    case(
        "connect of keyed streams with coroutines",
        lambda a, b: keyed(a).connect(keyed(b)).process(add_slowly, subtract_slowly, state=Sum),
        [5, On(1, 1), 2],
        [(1, 5), (1, 6), (0, 2)],
        inputs=2,
        order=by_first,
    ),
    case(
        "connect with a broadcast stream",
        lambda a, b: a.connect(b.broadcast()).process(
            times_factor, set_factor, broadcast_state=Sum
        ),
        [On(1, 2), 1, 2, On(1, 3), 1],
        [2, 4, 3],
        inputs=2,
    ),
    case(
        "connect of a keyed with a broadcast stream",
        lambda a, b: (
            keyed(a)
            .connect(b.broadcast())
            .process(
                times_factor_of_all,
                set_factor_of_all,
                state=Sum,
                broadcast_state=Sum,
                on_timer=tell_factor,
            )
        ),
        [On(1, 2), 1, 2, On(1, 3), 1, Advance("10s")],
        [(1, 2), (0, 4), (1, 6), (1, 3), (0, 3)],
        inputs=2,
        order=by_first,
    ),
]

CASES = [*PLAIN, *COROUTINES, *KEYED, *TWO_INPUTS]
