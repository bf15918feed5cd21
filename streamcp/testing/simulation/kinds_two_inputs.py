"""The kinds of steps with two inputs: keyed ones that share a state, and broadcast state.

What comes by the second input is marked with the step's name, so that the same stream may come by
both. A broadcast input is one source in one split: every subtask must learn the same records in
the same order, and tells each of them with the number of those that it has learnt. So a record
that one of them never learnt, or learnt twice, shows in what is told, unless what others tell
comes again after a restore; the next number is wrong even then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from streamcp.operators.context import KeyContext
from streamcp.testing.simulation.kinds import (
    Hooks,
    Kind,
    Lists,
    Step,
    Streams,
    call_options,
    common,
    draw_calls,
)
from streamcp.testing.simulation.kinds_keyed import Keyed, worked, working_and_waiting
from streamcp.testing.simulation.records import AnyItem, Item, Seen


class TwoInputs(Kind):
    """A step with two inputs; `build` gets what `connect` has made of them."""

    broadcast: ClassVar[bool] = False

    def expected_of(self, step: Step, first: Sequence[Any], second: Sequence[Any]) -> Lists:
        """What comes out of each output, in any order."""
        raise NotImplementedError


def _marked(step: Step, item: AnyItem) -> Item:
    """A record of the second input, told apart from those of the first."""
    return Item(item.key, item.origin + _mark(step), item.seq, item.tag)


def _mark(step: Step) -> str:
    return f"!{step.name}"


class Connect(TwoInputs):
    """Two keyed inputs with one state, plain functions."""

    keyed = True
    weight = 2

    def draw(self, rnd: random.Random) -> dict[str, Any]:
        """Timers, and own records."""
        return KEYED.draw(rnd)

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Note the records of both inputs in the same state, and hand them on."""

        def left(item: AnyItem, state: Seen, ctx: KeyContext[int]) -> list[Item]:
            hooks.user(step.name, item)
            return worked(step, item, state, ctx, ordered)

        def right(item: AnyItem, state: Seen, ctx: KeyContext[int]) -> list[Item]:
            hooks.user(f"{step.name}, input 2", item)
            return worked(step, _marked(step, item), state, ctx, ordered)

        return {"main": _process(step, stream, hooks, (left, right), common(step))}

    def expected_of(self, step: Step, first: Sequence[Any], second: Sequence[Any]) -> Lists:
        """As of one input that has the records of both."""
        return KEYED.expected(step, [*first, *(_marked(step, item) for item in second)])


class ConnectAsync(Connect):
    """The same with coroutines: the records of one key in order, whichever input they came by."""

    def draw(self, rnd: random.Random) -> dict[str, Any]:
        """Calls, too."""
        return draw_calls(rnd) | super().draw(rnd)

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Change the state, wait, and find it as it was."""
        work = working_and_waiting(step, hooks, ordered)

        async def left(item: AnyItem, state: Seen, ctx: KeyContext[int]) -> list[Item]:
            hooks.asks(step.name, (ctx.key, 0, item), state)
            return await work(item, state, ctx)

        async def right(item: AnyItem, state: Seen, ctx: KeyContext[int]) -> list[Item]:
            hooks.asks(step.name, (ctx.key, 1, item), state)
            return await work(_marked(step, item), state, ctx)

        return {"main": _process(step, stream, hooks, (left, right), call_options(step))}


KEYED = Keyed()


def _process(
    step: Step,
    stream: Any,
    hooks: Hooks,
    functions: tuple[Callable[..., Any], Callable[..., Any]],
    options: dict[str, Any],
) -> Any:
    return stream.process(*functions, state=Seen, on_timer=KEYED.on_timer(step, hooks), **options)


class Broadcast(TwoInputs):
    """A broadcast input beside one without keys."""

    broadcast = True
    outputs: ClassVar[tuple[str, ...]] = ("main", "told")

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Hand the records on, and tell what is learnt on an output of its own."""
        made = self.process(step, stream, hooks, ordered)

        def is_record(item: AnyItem) -> bool:
            return not item.origin.endswith(_mark(step))

        main, told = made.branch(is_record, parallelism=step.parallelism)
        return {"main": main, "told": told}

    def process(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Any:
        """Add the step itself."""

        def read(item: AnyItem, learnt: Seen) -> list[AnyItem]:
            hooks.user(step.name, item)
            return [item]

        return stream.process(read, _learning(step, hooks), broadcast_state=Seen, **common(step))

    def expected_of(self, step: Step, first: Sequence[Any], second: Sequence[Any]) -> Lists:
        """The records, and what every subtask has learnt, each with its number."""
        told = [_told(step, item, i + 1, "") for i, item in enumerate(second)]
        return {"main": list(first), "told": told * step.parallelism}


def _learning(step: Step, hooks: Hooks) -> Callable[..., list[Item]]:
    def learn(item: AnyItem, learnt: Seen, *context: Any) -> list[Item]:
        hooks.user(f"{step.name}, broadcast", item)
        mark = learnt.note(item, ordered=True)
        return [_told(step, item, learnt.count, mark)]

    return learn


def _told(step: Step, item: AnyItem, count: int, mark: str) -> Item:
    return Item(item.key, item.origin + _mark(step), item.seq, f"{count}{mark}")


class KeyedBroadcast(Broadcast):
    """A broadcast input beside a keyed one."""

    keyed = True

    def process(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Any:
        """Note each record in the state of its key."""

        def read(item: AnyItem, state: Seen, learnt: Seen, ctx: KeyContext[int]) -> list[Item]:
            hooks.user(step.name, item)
            mark = state.note(item, ordered=ordered)
            return [Item(ctx.key, item.origin, item.seq, item.tag + mark)]

        return stream.process(
            read, _learning(step, hooks), state=Seen, broadcast_state=Seen, **common(step)
        )

    def expected_of(self, step: Step, first: Sequence[Any], second: Sequence[Any]) -> Lists:
        """The same; records come out in the plain form."""
        made = [Item(item.key, item.origin, item.seq, item.tag) for item in first]
        return super().expected_of(step, made, second)
