"""The kinds of steps with state per key. Each one's state would show a record that is lost, comes
twice, or comes too early."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from streamcp.elements import MIN_TIMESTAMP
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
    waiting,
)
from streamcp.testing.simulation.records import AnyItem, Item, Seen


def key_of(item: AnyItem) -> int:
    """The key of a record."""
    return item.key


def _per_key(step: Step, records: Iterable[Any]) -> list[Any]:
    """A numbered record of the step for each, per key."""
    counts = Counter(item.key for item in records)
    return [Item(key, step.name, (i + 1,)) for key, count in counts.items() for i in range(count)]


class Keyed(Kind):
    """A plain process function, perhaps with timers and records of its own."""

    keyed = True
    weight = 2

    def draw(self, rnd: random.Random) -> dict[str, Any]:
        """Timers, and own records."""
        return {
            "timers": rnd.choice(("none", "none", "due")),
            "counted": rnd.random() < 0.4,
        }

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Note each record in the state, and hand it on."""

        def process(item: AnyItem, state: Seen, ctx: KeyContext[int]) -> list[Item]:
            hooks.user(step.name, item)
            return worked(step, item, state, ctx, ordered)

        return {"main": self.process(step, stream, hooks, process, common(step))}

    def process(
        self,
        step: Step,
        stream: Any,
        hooks: Hooks,
        function: Callable[..., Any],
        options: dict[str, Any],
    ) -> Any:
        """Add the verb."""
        on_timer = self.on_timer(step, hooks)
        return stream.process(function, state=Seen, on_timer=on_timer, **options)

    def on_timer(self, step: Step, hooks: Hooks) -> Callable[..., list[Item]] | None:
        """A function that emits a record per timer, if the step has timers."""

        def on_timer(timestamp: int, state: Seen, ctx: KeyContext[int]) -> list[Item]:
            hooks.user(f"timer of {step.name}", ctx.key)
            return [Item(ctx.key, f"timer {step.name}", (timestamp,))]

        return on_timer if step.options["timers"] == "due" else None

    def expected(self, step: Step, records: Sequence[Any]) -> Lists:
        """Each record, own ones, and one per timer."""
        made = [Item(item.key, item.origin, item.seq, item.tag) for item in records]
        own = _per_key(step, records)
        if step.options["counted"]:
            made += own
        if step.options["timers"] == "due":
            made += [Item(one.key, f"timer {step.name}", one.seq) for one in own]
        return {"main": made}


def worked(
    step: Step, item: AnyItem, state: Seen, ctx: KeyContext[int], ordered: bool
) -> list[Item]:
    """Note a record in the state; return what comes of it, the record itself last."""
    mark = state.note(item, ordered=ordered)
    # A journaled answer has seen the watermark of the attempt that made it, perhaps a further one.
    timed = ctx.watermark > MIN_TIMESTAMP or state.watermark > MIN_TIMESTAMP
    if timed and not step.options.get("journal"):
        mark += state.note_time(ctx.timestamp, ctx.watermark)
    if step.options["timers"] == "due":
        ctx.set_timer(state.count)  # long past
    own = [Item(ctx.key, step.name, (state.count,))] if step.options["counted"] else []
    return [*own, Item(ctx.key, item.origin, item.seq, item.tag + mark)]


def working_and_waiting(
    step: Step, hooks: Hooks, ordered: bool
) -> Callable[[AnyItem, Seen, KeyContext[int]], Coroutine[Any, Any, list[Item]]]:
    """Make the coroutine that works a record, waits, and finds the state as it was."""
    wait = waiting(step)

    async def process(item: AnyItem, state: Seen, ctx: KeyContext[int]) -> list[Item]:
        hooks.user(step.name, item)
        done = worked(step, item, state, ctx, ordered)
        count = state.count
        await wait(item)
        # Two calls of one key at once would show as a record that came twice.
        mark = "" if state.count == count else "#twice at once"
        return [*done[:-1], Item(ctx.key, item.origin, item.seq, done[-1].tag + mark)]

    return process


class KeyedAsync(Keyed):
    """A keyed coroutine: several keys at once, the records of one key in order."""

    weight = 3

    def draw(self, rnd: random.Random) -> dict[str, Any]:
        """Calls, too."""
        return draw_calls(rnd) | super().draw(rnd)

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Change the state, wait, and find it as it was."""
        work = working_and_waiting(step, hooks, ordered)

        async def process(item: AnyItem, state: Seen, ctx: KeyContext[int]) -> list[Item]:
            hooks.asks(step.name, (ctx.key, 0, item), state)
            return await work(item, state, ctx)

        return {"main": self.process(step, stream, hooks, process, call_options(step))}


class Count(Kind):
    """The built-in count."""

    keyed = True

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """A record of the step's own per count."""

        def item(counted: tuple[int, int]) -> Item:
            return Item(counted[0], step.name, (counted[1],))

        made = stream.count(**common(step))
        return {"main": made.map(item, parallelism=step.parallelism)}

    def expected(self, step: Step, records: Sequence[Any]) -> Lists:
        """One to the number of records, per key."""
        return {"main": _per_key(step, records)}


class Scan(Count):
    """The built-in scan."""

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Counts, in records."""

        def add(value: Item, item: AnyItem) -> Item:
            hooks.user(step.name, item)
            return Item(item.key, step.name, (value.seq[0] + 1,))

        return {"main": stream.scan(lambda: Item(0, step.name, (0,)), add, **common(step))}
