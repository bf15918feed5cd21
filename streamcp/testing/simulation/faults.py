"""What goes wrong in a simulated run: a plan drawn from the seed, as plain data.

A fault says at which count of what it happens, so a plan can be printed, replayed and made
smaller. Nothing here acts: `world` does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from streamcp.config import EXACTLY_ONCE_MODES
from streamcp.testing.simulation.branches import Beginning
from streamcp.testing.simulation.disk_faults import draw_fault

Counter: TypeAlias = Literal[
    "step", "user", "target", "channel", "storage", "stop", "savepoint", "disk", "completed"
]
"""What is counted: callbacks of the event loop, calls of users' functions, of targets, of channels
that are given records or have them taken, and of the checkpoint storage, those of them that
complete the checkpoint of a stop or write a savepoint, system calls on the disk, completed
checkpoints."""

Action: TypeAlias = Literal[
    "crash",  # everything that is not durable is gone, now; with the value "killed" what was
    # written stays although it was not fsynced
    "crash after",  # as soon as the call has taken effect
    "cancel",  # the job's task is cancelled, as a second Ctrl-C does
    "stop",  # with a last checkpoint
    "checkpoint",  # asked for
    "savepoint",  # asked for, in the mode `value`; None for that of the job
    "stop with savepoint",
    "drain",  # a stop after which the job has finished for good
    "begin from savepoint",  # the life begins from one, as the Beginning `value` says
    "take over",  # a second copy starts, and fences the first
    "mode",
    "interval",
    "alignment timeout",
    "fail",  # the call raises
    "lose",  # the call takes effect, and raises: the acknowledgement is lost
    "slow",  # the call takes `value` seconds longer
    "disk fault",  # `value` is a DiskFault
    "slow disk",  # each fsync takes `value[0]` seconds, for `value[1]` steps
    "rescale",  # the life begins under the parallelisms that `value` stands for
    "full disk",  # only `value[0]` bytes are left, for `value[1]` steps
]


@dataclass(frozen=True, slots=True)
class Fault:
    """`action` at the `at`-th (from 1) of `counter`, in life number `life` (from 0)."""

    life: int
    counter: Counter
    at: int
    action: Action
    value: Any = None

    def __str__(self) -> str:
        """`life 0, step 371: crash`."""
        value = "" if self.value is None else f" {self.value}"
        return f"life {self.life}, {self.counter} {self.at}: {self.action}{value}"


Plan: TypeAlias = tuple[Fault, ...]

_LONGEST: dict[Counter, int] = {
    "step": 3000,
    "user": 300,
    "target": 40,
    "channel": 200,
    "storage": 40,
    "disk": 300,
}
# A crash behind a checkpoint shows all that is wrong in it; most others come before any or long
# after the last, and show only that the job starts again.
_CRASHES: tuple[Counter, ...] = (
    *("step", "step", "step", "user", "target", "storage", "disk"),
    *("completed", "completed", "completed"),
)
_STEPS = (10, 100, 500)
_SLOW = (0.0002, 0.002, 0.02, 0.3)


@dataclass(frozen=True)
class Emphasis:
    """What of a plan is drawn more often: how many crashes, at which counts, at the latest behind
    which checkpoint; and in which share of the plans lives have other parallelisms. `asked`: how
    many checkpoints a life is asked for in the midst of its work; those that timers trigger mostly
    come when nothing else is to be done.

    `drains`: the job may be finished before its sources have given out everything."""

    crashes: tuple[int, ...] = (0, 1, 1, 1, 2, 2, 3, 4)
    crash_at: tuple[Counter, ...] = _CRASHES
    checkpoints: int = 8
    rescaled: float = 0.5
    asked: tuple[int, ...] = (0,)
    drains: bool = True


def draw_plan(rnd: random.Random, emphasis: Emphasis = Emphasis()) -> Plan:
    """Draw a plan: some crashes, and other faults and changes in between."""
    crashes = rnd.choice(emphasis.crashes)
    faults = [_crash(rnd, life, emphasis) for life in range(crashes)]
    for life in range(crashes + 1):
        faults += [_fault(rnd, life) for _ in range(rnd.choice((0, 0, 1, 2, 4)))]
        faults += [_change(rnd, life) for _ in range(rnd.choice((0, 1, 3, 6)))]
        for _ in range(rnd.choice(emphasis.asked)):
            faults.append(Fault(life, "step", _early_or_late(rnd, 600), "checkpoint"))
        if emphasis.drains and rnd.random() < 0.04:
            faults.append(Fault(life, "step", _at(rnd, "step"), "drain"))
    if rnd.random() < 0.2:
        faults += _savepoints(rnd, crashes)
    if rnd.random() < 0.1:
        faults += _failing_stop(rnd, rnd.randint(0, crashes))
    if rnd.random() < emphasis.rescaled:
        lives = [life for life in range(1, crashes + 1) if rnd.random() < 0.7]
        faults += [Fault(life, "step", 0, "rescale", rnd.randrange(1000)) for life in lives]
    return tuple(faults)


def last_life(plan: Plan) -> int:
    """The last life that the plan disturbs; -1 if it is empty."""
    return max((fault.life for fault in plan), default=-1)


def beginnings(plan: Plan) -> dict[int, Beginning]:
    """The lives that begin from a savepoint."""
    return {fault.life: fault.value for fault in plan if fault.action == "begin from savepoint"}


def _at(rnd: random.Random, counter: Counter) -> int:
    return _early_or_late(rnd, _LONGEST[counter])


def _early_or_late(rnd: random.Random, longest: int) -> int:
    """Early and late moments alike: what happens in the beginning is short, and matters."""
    return int(longest ** rnd.random())


def _savepoints(rnd: random.Random, crashes: int) -> list[Fault]:
    """A savepoint or two, and a life or two that begin from one."""
    taken, begun = rnd.choice((1, 1, 2)), rnd.choice((1, 1, 1, 2))
    return [
        *(_savepoint(rnd, rnd.randint(0, crashes)) for _ in range(taken)),
        *(_beginning(rnd, rnd.randint(1, crashes + 1)) for _ in range(begun)),
    ]


def _savepoint(rnd: random.Random, life: int) -> Fault:
    action: Action = rnd.choice(("savepoint", "savepoint", "stop with savepoint"))
    return Fault(life, "step", _at(rnd, "step"), action, rnd.choice((None, *EXACTLY_ONCE_MODES)))


def _beginning(rnd: random.Random, life: int) -> Fault:
    how: Beginning = (rnd.choice(("beside", "beside", "instead")), rnd.randrange(3))
    return Fault(life, "step", 0, "begin from savepoint", how)


def _failing_stop(rnd: random.Random, life: int) -> list[Fault]:
    """A stop that fails when everything holds still for it, and the job must go on (P33)."""
    with_savepoint, fails = rnd.random() < 0.7, rnd.random() < 0.7
    action: Action = "fail" if fails else rnd.choice(("lose", "slow", "crash", "crash after"))
    counter: Counter = rnd.choice(("savepoint", "savepoint", "stop")) if with_savepoint else "stop"
    at, value = _at(rnd, "step"), 0.3 if action == "slow" else None
    stop = Fault(life, "step", at, "stop")
    if with_savepoint:
        mode = rnd.choice((None, *EXACTLY_ONCE_MODES))
        stop = Fault(life, "step", at, "stop with savepoint", mode)
    return [stop, Fault(life, counter, 1, action, value)]


def _crash(rnd: random.Random, life: int, emphasis: Emphasis) -> Fault:
    counter = rnd.choice(emphasis.crash_at)
    action: Action = "crash"
    if counter in ("target", "storage"):
        action = rnd.choice(("crash", "crash after"))
    value = "killed" if rnd.random() < 0.3 else None
    longest = emphasis.checkpoints if counter == "completed" else _LONGEST[counter]
    return Fault(life, counter, _early_or_late(rnd, longest), action, value)


def _fault(rnd: random.Random, life: int) -> Fault:
    if rnd.random() < 0.3:
        return _disk_fault(rnd, life)
    counter: Counter = rnd.choice(
        ("user", "user", "target", "target", "storage", "storage", "channel")
    )
    action: Action = "fail"
    if counter == "user":
        action = rnd.choice(("fail", "lose"))
    elif counter != "channel":
        action = rnd.choice(("fail", "lose", "slow", "slow"))
    value = rnd.choice(_SLOW) if action == "slow" else None
    return Fault(life, counter, _at(rnd, counter), action, value)


def _disk_fault(rnd: random.Random, life: int) -> Fault:
    kind: Action = rnd.choice(("disk fault", "disk fault", "disk fault", "slow disk", "full disk"))
    if kind == "disk fault":
        return Fault(life, "disk", 0, kind, draw_fault(rnd))
    values = _SLOW if kind == "slow disk" else (0, 100, 3000)
    return Fault(life, "step", _at(rnd, "step"), kind, (rnd.choice(values), rnd.choice(_STEPS)))


def _change(rnd: random.Random, life: int) -> Fault:
    action: Action = rnd.choice(
        ("checkpoint", "checkpoint", "checkpoint", "mode", "interval", "alignment timeout")
    )
    if rnd.random() < 0.1:
        action = rnd.choice(("stop", "cancel", "savepoint", "stop with savepoint", "take over"))
    values: dict[Action, tuple[Any, ...]] = {
        "mode": EXACTLY_ONCE_MODES,
        "interval": (None, "1ms", "5ms", "50ms"),
        "alignment timeout": ("0s", "1ms", "10ms"),
    }
    value = rnd.choice(values[action]) if action in values else None
    return Fault(life, "step", _at(rnd, "step"), action, value)
