"""The world of one simulated run: time, what outlives crashes, and the faults of each life.

A crash copies what is durable at that very moment; the dead life is then cancelled, and nothing
that it still does reaches the copy. So a crash is possible between any two callbacks, inside any
call of a user's function, of a target or of the storage, and needs no help of what crashes.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import zlib
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, get_args

from streamcp.channel.channel import Channel, NewChannel
from streamcp.errors import StorageError
from streamcp.identifiers import ChannelId
from streamcp.testing.failing import watched_channels
from streamcp.testing.simulation.answers import Asked, DurableAnswers
from streamcp.testing.simulation.branches import Branch, Savepoints
from streamcp.testing.simulation.clock import SimulatedClock
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.simulation.disk_faults import DiskFault, Operation
from streamcp.testing.simulation.faults import Counter, Fault, Plan
from streamcp.testing.simulation.files import Files
from streamcp.testing.simulation.loop import STYLES, SimulatedLoop
from streamcp.testing.simulation.targets import Effect, Target
from streamcp.testing.simulation.trace import Trace

T = TypeVar("T")

# What users' functions take, in seconds: nothing, or one of these.
_COSTS = ((0.0,), (0.0,), (0.0, 0.0, 0.0002, 0.001))


class AnswersKnown(Protocol):
    """The journal of the attempt that a life is in."""

    known: frozenset[Asked]


class InjectedFailure(Exception):
    """Raised by the simulator in place of a user's function or a target."""


class Outside:
    """What outlives a crash: the disk with the checkpoints, and the targets."""

    def __init__(self, files: Files, target: Target) -> None:
        self.files = files
        self.target = target

    def rows(self, sink: str, is_own: Callable[[str], bool]) -> list[Any]:
        """What a reader of a sink sees of the committed transactions that `is_own` wants."""
        own = self.target.records(sink, is_own)
        return [*own, *map(_as_tuple, self.files.rows(sink, is_own))]

    def committed(self) -> frozenset[str]:
        """All transactions that readers see."""
        return frozenset(self.files.committed()).union(self.target.committed)

    def crashed(self, *, power_fails: bool) -> Outside:
        """What a crash at this moment leaves behind."""
        return Outside(self.files.crashed(power_fails=power_fails), self.target.copy())


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


class World:
    """Time and schedule of a whole run, and what is outside now. `close` it."""

    def __init__(self, seed: str, *, trace: Trace | None = None, step_limit: int = 400_000) -> None:
        rnd = random.Random(seed)
        style = rnd.choice(STYLES)
        self.clock = SimulatedClock(rnd, slowness=rnd.choice((0.0, 0.1, 1.0, 1.0)))
        self.loop = SimulatedLoop(rnd, self.clock, style=style, limit=step_limit)
        self.outside = Outside(Files(SimulatedDisk(random.Random(f"{seed} disk"))), Target())
        self._costs = rnd.choice(_COSTS)
        self._salt = rnd.getrandbits(32)
        self.savepoints = Savepoints()
        self.answers = DurableAnswers()
        self.forks = itertools.count(1)
        self.trace = trace
        if trace is not None:
            trace.now = lambda: (self.clock.now, self.loop.steps)
            trace.say("schedule", style)

    def work(self, function: str, record: Any) -> None:
        """Spend what a user's function takes, which nothing else does meanwhile: some are slow, for
        some keys, so that one subtask falls behind the others."""
        if len(self._costs) > 1:
            label = f"{function} {getattr(record, 'key', '')}"
            drawn = zlib.crc32(label.encode(), self._salt)
            self.clock.advance(self._costs[drawn % len(self._costs)])

    def close(self) -> None:
        """End what the run has left."""
        self.loop.close_all()


class Life:
    """One process from its start to its end or crash.

    `survived` is set by a crash: what the next life finds. `hands` is told of the faults that
    concern the job as a whole (stop, mode, ...). `rescaling` stands for other parallelisms; None
    for those of the job. `branch` is the line of history that it goes on with. `opened` has
    what was opened and not yet closed, `violations` what was seen where nothing could be raised."""

    def __init__(
        self, world: World, number: int, plan: Plan, branch: Branch, *, beside: bool = False
    ) -> None:
        """Begin; `beside` another life, it leaves the disk to that one's faults."""
        self.world = world
        self.number = number
        self.branch = branch
        self.outside = world.outside
        self.survived: Outside | None = None
        self.task: asyncio.Task[Any] | None = None
        self.opened: list[str] = []
        self.violations: list[str] = []
        self.journal: AnswersKnown | None = None
        self.found_answers = 0
        self.hands: Callable[[Fault], None] = lambda fault: None
        self.disk = self.files.disk.process(f"life {number}")
        self._counts: dict[Counter, int] = dict.fromkeys(get_args(Counter), 0)
        own = [fault for fault in plan if fault.life == number]
        self.rescaling: int | None = next(
            (fault.value for fault in own if fault.action == "rescale"), None
        )
        self._faults = {(fault.counter, fault.at): fault for fault in own}
        if beside:
            return
        world.answers.lost = False
        self._arm_steps()
        self._prepare_disk([fault.value for fault in own if fault.action == "disk fault"])
        if world.trace is not None:
            world.trace.life = number

    def end(self) -> None:
        """Nothing of this life takes effect any more."""
        self.world.loop.at_step.clear()
        self.disk.end()
        disk = self.files.disk
        disk.plan()
        disk.capacity, disk.before, disk.delay, disk.trace = None, None, None, None

    def _prepare_disk(self, faults: list[DiskFault]) -> None:
        disk = self.files.disk
        disk.plan(*faults)
        disk.capacity = None
        disk.before = lambda _: self._count_disk()
        disk.delay = None
        disk.trace = None if self.world.trace is None else lambda line: self.say("disk", line)

    def _count_disk(self) -> None:
        self.hit("disk")

    def _arm_steps(self) -> None:
        loop = self.world.loop
        for (counter, at), fault in self._faults.items():
            if counter == "step":
                loop.at_step[loop.steps + at] = lambda fault=fault: self._at_step(fault)  # type: ignore[misc]

    def say(self, about: str, text: str) -> None:
        """Add a line to the trace, if there is one and this life is not over."""
        if self.world.trace is not None and self.survived is None:
            self.world.trace.say(about, text)

    # ---- faults

    def crash(self, fault: Fault) -> None:
        """Lose everything that is not durable, now."""
        if self.survived is None and self.task is not None and not self.task.done():
            self.say("fault", str(fault))
            self.survived = self.outside.crashed(power_fails=fault.value != "killed")
            self.world.answers.lost = True
            self.task.cancel()

    def hit(self, counter: Counter) -> Fault | None:
        """Count a call; return what is to happen to it. A crash has then happened already."""
        count = self._counts[counter] = self._counts[counter] + 1
        fault = self._faults.get((counter, count))
        if fault is None or self.survived is not None:
            return None
        if fault.action == "crash":
            self.crash(fault)
            return None
        self.say("fault", str(fault))
        return fault

    def _at_step(self, fault: Fault) -> None:
        if self.survived is not None or self.task is None or self.task.done():
            return
        if fault.action == "crash":
            self.crash(fault)
            return
        self.say("fault", str(fault))
        match fault.action:
            case "cancel":
                self.task.cancel()
            case "full disk" | "slow disk":
                self._trouble_disk(fault)
            case _:
                self.hands(fault)

    def _trouble_disk(self, fault: Fault) -> None:
        """Fill it or slow it down, and set an end to that."""
        how_much, steps = fault.value
        disk, loop = self.files.disk, self.world.loop
        if fault.action == "full disk":
            self.files.limit(how_much)
            loop.at_step[loop.steps + steps] = lambda: self.files.limit(None)
        else:
            disk.delay = lambda operation: self._slow(operation, how_much)
            loop.at_step[loop.steps + steps] = lambda: setattr(disk, "delay", None)

    def _slow(self, operation: Operation, seconds: float) -> float:
        taken = seconds if operation.name == "fsync" else 0.0
        self.world.loop.thread_seconds += taken
        return taken

    # ---- calls that may go wrong

    @property
    def target(self) -> Target:
        """Where simulated sinks write to."""
        return self.outside.target

    @property
    def files(self) -> Files:
        """Where file sinks write to."""
        return self.outside.files

    def user(self, name: str, record: Any) -> None:
        """A user's function is called; may raise."""
        fault = self.called(name, record)
        if fault is not None:
            raise InjectedFailure(f"{name}: {fault}")

    def asks(self, name: str, content: Any, state: Any = None) -> None:
        """A call is made: its answer must not have been durable before."""
        if self.journal is None or not self.journal.known or self.world.answers.lost:
            return
        if self.world.answers.asked(name, content, state) in self.journal.known:
            self.violations.append(f"I9: {name} is called again for {content}")

    def called(self, name: str, record: Any) -> Fault | None:
        """A user's function is called: return what is to happen to it."""
        if self.world.trace is not None:
            self.say("call", f"{name} {record}")
        self.world.work(name, record)
        return self.hit("user")

    @property
    def channels(self) -> NewChannel:
        """What makes the channels of the job; watched ones cost time, and are there if needed."""
        is_watched = any(counter == "channel" for counter, _ in self._faults)
        return watched_channels(self._call_channel) if is_watched else Channel

    def _call_channel(self, call: str, channel: ChannelId) -> None:
        fault = self.hit("channel")
        if fault is not None:
            raise InjectedFailure(f"{call} of {channel}: {fault}")

    async def call_target(self, name: str, effect: Effect) -> Any:
        """Call a target: takes effect at once, late, or twice (once more by who asks again)."""
        self.say("target", name)
        fault = self.hit("target")
        action = None if fault is None else fault.action
        if action == "fail":
            raise InjectedFailure(f"{name}: {fault}")
        if fault is not None and action == "slow":
            await asyncio.sleep(fault.value)
        elif self._counts["target"] % 3 == 0:
            await asyncio.sleep(0)
        result = effect()
        self._after(name, fault)
        return result

    def call_storage(self, name: str, call: Callable[[], T], *counters: Counter) -> T:
        """Call the checkpoint storage, from what would be a thread; `counters` count it too."""
        self.say("storage", name)
        faults = [self.hit(counter) for counter in ("storage", *counters)]
        fault = next(filter(None, faults), None)
        if fault is not None and fault.action == "fail":
            raise StorageError(f"{name}: {fault}")
        if fault is not None and fault.action == "slow":
            self.world.loop.thread_seconds += fault.value
        result = call()
        self._after(name, fault, StorageError)
        return result

    def _after(
        self, name: str, fault: Fault | None, error: type[Exception] = InjectedFailure
    ) -> None:
        if fault is not None and fault.action == "crash after":
            self.crash(fault)
        elif fault is not None and fault.action == "lose":
            raise error(f"{name}: {fault}")
