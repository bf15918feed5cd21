"""The kind of step that is a loop: every record goes round as often as its number says.

In the loop a record carries its lap as the last part of its number, so that it is another one in
each lap for the states that look for records which come twice.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
from streamcp.testing.simulation.kinds_keyed import key_of
from streamcp.testing.simulation.records import AnyItem, Item, Seen, tagged

_LEFT = " left"  # what names the branch of a loop, behind the loop's own name


def is_back_edge(channel: str) -> bool:
    """Say of the name of a channel whether it leads back to the head of a loop."""
    return channel.endswith(f"{_LEFT}.yes)")


class Loop(Kind):
    """A loop around a coroutine, a keyed step (perhaps with timers), or nothing but its laps."""

    weight = 2

    def draw(self, rnd: random.Random) -> dict[str, Any]:
        """What is inside, and how records come back."""
        return draw_calls(rnd) | {
            "inside": rnd.choice(("nothing", "async", "async", "keyed", "keyed_async")),
            "timers": rnd.choice(("none", "none", "due")),
            "back": rnd.choice(("forward", "rebalance", "key")),
        }

    def build(self, step: Step, stream: Any, hooks: Hooks, ordered: bool) -> Streams:
        """Enter, go round, leave."""

        def body(loop: Any) -> tuple[Any, Any]:
            again, output = _laps(step, _inside(step, loop, hooks), hooks)
            match step.options["back"]:
                case "rebalance":
                    again = again.rebalance()
                case "key":
                    again = again.key_by(key_of)
            return again, output

        entering = stream.map(_enter, parallelism=step.parallelism)
        output = entering.iterate(body, **common(step))
        return {"main": output.map(_leave, parallelism=step.parallelism)}

    def expected(self, step: Step, records: Sequence[Any]) -> Lists:
        """Tags of all laps, and one record per timer."""
        made: list[Any] = []
        calls: Counter[int] = Counter()
        for record in records:
            item = Item(**vars(record)) if _is_keyed(step) and type(record) is not Item else record
            item = _enter(item)
            goes_round = True
            while goes_round:
                calls[item.key] += 1
                item = _lap(step, item)
                goes_round = _goes_round(item)
            if not _vanishes(item):
                made.append(_leave(item))
        if _is_keyed(step) and step.options["timers"] == "due":
            timers = [
                _timer(step, key, n + 1) for key, count in calls.items() for n in range(count)
            ]
            made += [_leave(_lap(step, timer)) for timer in timers]
        return {"main": made}

    def keeps_order(self, step: Step) -> bool:
        """Records overtake one another."""
        return False


def _is_keyed(step: Step) -> bool:
    return step.options["inside"] in ("keyed", "keyed_async")


def _timer(step: Step, key: int, timestamp: int) -> Item:
    return Item(key, f"timer {step.name}", (timestamp, 0))


# ---- the way of a record


def _enter(item: AnyItem) -> Any:
    return replace(item, seq=(*item.seq, 0))


def _leave(item: AnyItem) -> Any:
    return replace(item, seq=item.seq[:-1])


def _lap(step: Step, item: AnyItem) -> Any:
    return tagged(replace(item, seq=(*item.seq[:-1], item.seq[-1] + 1)), f".{step.name}")


def _goes_round(item: AnyItem) -> bool:
    """Those of timers leave at once: each would set another one."""
    return item.seq[-1] <= item.seq[0] % 3 and not item.origin.startswith("timer")


def _vanishes(item: AnyItem) -> bool:
    """The loop ends also where its last record does not leave, but is dropped."""
    return item.seq[0] % 7 == 5 and not item.origin.startswith("timer")


def _laps(step: Step, stream: Any, hooks: Hooks) -> tuple[Any, Any]:
    def lap(item: AnyItem) -> AnyItem:
        hooks.user(step.name, item)
        made: AnyItem = _lap(step, item)
        return made

    def stays(item: AnyItem) -> bool:
        return _goes_round(item) or not _vanishes(item)

    parallelism = step.parallelism
    walked = stream.map(lap, parallelism=parallelism).filter(stays, parallelism=parallelism)
    again, output = walked.branch(_goes_round, name=f"{step.name}{_LEFT}", parallelism=parallelism)
    return again, output


# ---- what is inside


def _inside(step: Step, loop: Any, hooks: Hooks) -> Any:
    options = call_options(step) | {"name": f"{step.name} inside"}
    match step.options["inside"]:
        case "nothing":
            return loop
        case "async":
            return _async(step, loop, options)
        case "keyed":
            options = common(step) | {"name": f"{step.name} inside"}
            return _keyed(step, loop, hooks, _process(step), options)
        case _:
            return _keyed(step, loop, hooks, _slow_process(step), options)


def _async(step: Step, loop: Any, options: dict[str, Any]) -> Any:
    wait = waiting(step)

    async def same(item: AnyItem) -> AnyItem:
        await wait(item)
        return item

    return loop.rebalance().map(same, **options)


def _process(step: Step) -> Any:
    def process(item: AnyItem, state: Seen, ctx: KeyContext[int]) -> list[Item]:
        if step.options["timers"] == "due":
            ctx.set_timer(state.count + 1)  # long past
        mark = state.note(item, ordered=False)
        return [Item(ctx.key, item.origin, item.seq, item.tag + mark)]

    return process


def _slow_process(step: Step) -> Any:
    process, wait = _process(step), waiting(step)

    async def slowly(item: AnyItem, state: Seen, ctx: KeyContext[int]) -> list[Item]:
        worked: list[Item] = process(item, state, ctx)
        await wait(item)
        return worked

    return slowly


def _keyed(step: Step, loop: Any, hooks: Hooks, function: Any, options: dict[str, Any]) -> Any:
    def on_timer(timestamp: int, state: Seen, ctx: KeyContext[int]) -> list[Item]:
        hooks.user(f"timer of {step.name}", ctx.key)
        return [_timer(step, ctx.key, timestamp)]

    called = on_timer if step.options["timers"] == "due" else None
    return loop.key_by(key_of).process(function, state=Seen, on_timer=called, **options)
