"""The kinds of steps that random jobs are drawn from; `kinds_keyed` has those with state,
`kinds_two_inputs` those with two inputs.

A kind is one small class: what it draws, what it adds to a stream, and what it makes of a list of
records in plain Python. To add one, write it and list it in `jobs.KINDS`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from streamcp.config import Retry
from streamcp.testing.simulation.records import AnyItem, tagged

Streams: TypeAlias = dict[str, Any]
"""A stream per output of a step."""
Lists: TypeAlias = dict[str, list[Any]]
"""The records of each output of a step."""
Exchange: TypeAlias = Literal["forward", "rebalance", "key"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a drawn job; also a source (no inputs) or a sink.

    `inputs` names outputs of other steps as (step, output); several are united. Behind "forward"
    the parallelism is that of the input. `second` is the same for the second input of a step that
    has two."""

    kind: str
    name: str
    inputs: tuple[tuple[str, str], ...]
    exchange: Exchange = "forward"
    parallelism: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    second: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """One line."""
        inputs = _listed(self.inputs)
        behind = f" behind {inputs} by {self.exchange}" if inputs else ""
        if self.second:
            behind += f", input 2 behind {_listed(self.second)}"
        options = "".join(f" {name}={value}" for name, value in self.options.items())
        return f"{self.name}: {self.kind}{behind}, parallelism {self.parallelism}{options}"


def _listed(outputs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(name if output == "main" else f"{name}.{output}" for name, output in outputs)


class Hooks(Protocol):
    """What the functions of a job tell the simulator."""

    def user(self, name: str, record: Any, /) -> None:
        """A user's function is called; may raise."""
        ...

    def asks(self, name: str, content: Any, state: Any = None, /) -> None:
        """A call is made for `content`, and finds `state`, as the journal would tell it."""
        ...


class Kind:
    """A kind of step. The defaults are those of a step that keeps order and has one output."""

    keyed: ClassVar[bool] = False
    weight: ClassVar[int] = 1
    outputs: ClassVar[tuple[str, ...]] = ("main",)

    def draw(self, rnd: random.Random) -> dict[str, Any]:
        """Draw the options."""
        return {}

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Add the step to a stream; `ordered` says that its input keeps order."""
        raise NotImplementedError

    def expected(self, step: Step, records: Sequence[Any]) -> Lists:
        """What comes out of each output, in any order."""
        raise NotImplementedError

    def keeps_order(self, step: Step) -> bool:
        """The records of a key and origin come out in their order."""
        return True


def common(step: Step) -> dict[str, Any]:
    """The options that every verb takes."""
    return {"name": step.name, "parallelism": step.parallelism}


# ---- plain functions


class Map(Kind):
    """A plain function."""

    weight = 2

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Add to the tag."""

        def add(item: AnyItem) -> AnyItem:
            hooks.user(step.name, item)
            made: AnyItem = tagged(item, f".{step.name}")
            return made

        return {"main": stream.map(add, **common(step))}

    def expected(self, step: Step, records: Sequence[Any]) -> Lists:
        """Tags added."""
        return {"main": [tagged(item, f".{step.name}") for item in records]}


class Filter(Kind):
    """A plain filter."""

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Drop a quarter."""

        def keep(item: AnyItem) -> bool:
            hooks.user(step.name, item)
            return _kept(item)

        return {"main": stream.filter(keep, **common(step))}

    def expected(self, step: Step, records: Sequence[Any]) -> Lists:
        """Three quarters."""
        return {"main": [item for item in records if _kept(item)]}


def _kept(item: AnyItem) -> bool:
    return item.seq[-1] % 4 != 1


class FlatMap(Kind):
    """None, one or two records for each."""

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Number the parts."""

        def several(item: AnyItem) -> list[Any]:
            hooks.user(step.name, item)
            return _parts(item)

        return {"main": stream.flat_map(several, **common(step))}

    def expected(self, step: Step, records: Sequence[Any]) -> Lists:
        """All parts."""
        return {"main": [part for item in records for part in _parts(item)]}


def _parts(item: AnyItem) -> list[Any]:
    parts = range(item.seq[0] % 3)
    return [type(item)(item.key, item.origin, (*item.seq, i), item.tag) for i in parts]


class Branch(Kind):
    """Even keys go one way, odd ones the other."""

    outputs: ClassVar[tuple[str, ...]] = ("main", "no")

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Two streams."""

        def even(item: AnyItem) -> bool:
            hooks.user(step.name, item)
            return item.key % 2 == 0

        yes, no = stream.branch(even, **common(step))
        return {"main": yes, "no": no}

    def expected(self, step: Step, records: Sequence[Any]) -> Lists:
        """Divided by the key."""
        return {
            "main": [item for item in records if item.key % 2 == 0],
            "no": [item for item in records if item.key % 2],
        }


class _OnError(Kind):
    """Some records fail, always; they are dropped or diverted."""

    outputs: ClassVar[tuple[str, ...]] = ("main", "errors")

    def draw(self, rnd: random.Random) -> dict[str, Any]:
        """What becomes of the failed ones."""
        return {"on_error": rnd.choice(("drop", "divert"))}

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """The failed records may be read as `errors`."""
        made = self.make(step, stream)
        return {"main": made} | ({"errors": made.errors} if _diverts(step) else {})

    def make(self, step: Step, stream: Any) -> Any:
        """Add the step itself."""
        raise NotImplementedError

    def expected(self, step: Step, records: Sequence[Any]) -> Lists:
        """Every fifth fails."""
        good = [item for item in records if not _fails(item)]
        return {"main": good} | ({"errors": [*filter(_fails, records)]} if _diverts(step) else {})


def _diverts(step: Step) -> bool:
    return bool(step.options["on_error"] == "divert")


def _fails(item: AnyItem) -> bool:
    return item.seq[-1] % 5 == 2


class Failing(_OnError):
    """A plain function that fails."""

    def make(self, step: Step, stream: Any) -> Any:
        """Raise for some records."""

        def fail(item: AnyItem) -> AnyItem:
            if _fails(item):
                raise ValueError("not this one")
            return item

        return stream.map(fail, on_error=step.options["on_error"], **common(step))


# ---- coroutines


def draw_calls(rnd: random.Random) -> dict[str, Any]:
    """How coroutines are called, and how long they take."""
    drawn: dict[str, Any] = {
        "concurrency": rnd.choice((1, 2, 5)),
        "wait": rnd.choice(("none", "turns", "time", "time")),
    }
    if rnd.random() < 0.3:
        drawn["timeout"] = "10s"
    return drawn


def call_options(step: Step) -> dict[str, Any]:
    """The options of the verb."""
    names = ("concurrency", "timeout", "ordered", "on_error", "journal")
    chosen = {name: step.options[name] for name in names if name in step.options}
    return chosen | common(step)


def waiting(step: Step) -> Callable[[AnyItem], Awaitable[None]]:
    """What a coroutine of the step waits for."""
    style = step.options["wait"]

    async def wait(item: AnyItem) -> None:
        if style == "turns":
            for _ in range(item.seq[-1] % 4):
                await asyncio.sleep(0)
        elif style == "time":
            await asyncio.sleep(0.001 * (item.seq[-1] * 5 % 4))

    return wait


class AsyncMap(Map):
    """A coroutine function, ordered or not."""

    weight = 3

    def draw(self, rnd: random.Random) -> dict[str, Any]:
        """Calls, and whether results keep their order."""
        return draw_calls(rnd) | {"ordered": rnd.random() < 0.6}

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Wait, then add to the tag."""
        wait = waiting(step)

        async def add(item: AnyItem) -> AnyItem:
            hooks.asks(step.name, item)
            hooks.user(step.name, item)
            await wait(item)
            made: AnyItem = tagged(item, f".{step.name}")
            return made

        return {"main": stream.map(add, **call_options(step))}

    def keeps_order(self, step: Step) -> bool:
        """If it is asked to."""
        return bool(step.options["ordered"])


class AsyncFlatMap(FlatMap):
    """An async generator, ordered or not."""

    def draw(self, rnd: random.Random) -> dict[str, Any]:
        """Calls, and whether results keep their order."""
        return draw_calls(rnd) | {"ordered": rnd.random() < 0.6}

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Wait before each part."""
        wait = waiting(step)

        async def several(item: AnyItem) -> AsyncIterator[Any]:
            hooks.asks(step.name, item)
            for part in _parts(item):
                hooks.user(step.name, part)
                await wait(item)
                yield part

        return {"main": stream.flat_map(several, **call_options(step))}

    def keeps_order(self, step: Step) -> bool:
        """If it is asked to."""
        return bool(step.options["ordered"])


class AsyncFailing(_OnError):
    """A coroutine filter that fails for some records, perhaps tried twice."""

    def draw(self, rnd: random.Random) -> dict[str, Any]:
        """Calls, retries and what becomes of the failed ones."""
        return draw_calls(rnd) | super().draw(rnd) | {"tries": rnd.choice((1, 2))}

    def make(self, step: Step, stream: Any) -> Any:
        """Wait, then raise for some records."""
        wait = waiting(step)

        async def fail(item: AnyItem) -> bool:
            await wait(item)
            if _fails(item):
                raise ValueError("not this one")
            return _kept(item)

        tries = step.options["tries"]
        retry = Retry(attempts=tries, backoff="1ms") if tries > 1 else None
        return stream.filter(fail, retry=retry, **call_options(step))

    def expected(self, step: Step, records: Sequence[Any]) -> Lists:
        """Some fail, some are dropped."""
        lists = super().expected(step, records)
        return lists | {"main": [item for item in lists["main"] if _kept(item)]}
