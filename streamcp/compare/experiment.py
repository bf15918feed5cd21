"""The comparison as a whole: every mode under the same load, there and back, then a kill per mode.

The first run sets the load: what its sources gave out in the time it had is what the sources of all
others give out. Runs follow each other: they share the machine with nothing of ours.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.clock import Clock, SystemClock
from streamcp.compare.breakdown import Breakdown, read_breakdowns
from streamcp.compare.messages import RunOrder
from streamcp.compare.outputs import Output, read_output
from streamcp.compare.process import Child, end_of_log, start_child
from streamcp.compare.runs import KilledRun, KillPlan, Life, MeasuredRun, measured_order
from streamcp.config import EXACTLY_ONCE_MODES, Mode
from streamcp.errors import JobFailed

# The part of an undisturbed run after which a process is killed: far from both ends.
_KILL_FROM, _KILL_TO, _KILL_LATEST = 0.4, 0.6, 0.8
# The kill comes up to so long (a part of a run) after the message that made it due: at no special
# moment.
_KILL_JITTER = 0.1
# A run that takes so many times as long as it should, and so long on top, is cut off.
_PATIENCE, _PATIENCE_SECONDS = 4, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is compared, and how.

    - `command`: starts a child that calls `child.main`.
    - `folder`: where each run gets a folder.
    - `every`: the checkpoint interval; None for the job's own.
    - `seconds`: how long the sources of the first run may give out records.
    - `records`: how many each source gives out, instead of `seconds`.
    - `channel_capacity`: records per channel; None for the job's own.
    - `sink_delay`: seconds that every record takes at a sink.
    - `alignment_timeout`: of the adaptive mode; None for the job's own.
    - `load`: the part of what the job can sustain that its sources give out, taken or not; None for
      as much as it takes. What it can sustain is measured first, without checkpoints.
    - `order`: in which the modes run undisturbed; None for there and back.
    - `kills`: kill a run of each mode.
    """

    command: Sequence[str]
    folder: Path
    modes: Sequence[Mode] = EXACTLY_ONCE_MODES
    every: str | None = None
    seconds: float = 10.0
    records: int | None = None
    channel_capacity: int | None = None
    sink_delay: float = 0.0
    alignment_timeout: str | None = None
    load: float | None = None
    order: Sequence[Mode] | None = None
    kills: bool = True

    @property
    def runs(self) -> Sequence[Mode]:
        """The modes of the undisturbed runs, in their order."""
        return measured_order(self.modes) if self.order is None else self.order


class Observer(Protocol):
    """Is told how far the comparison is."""

    def began(self, number: int, total: int, what: str) -> None:
        """Run `number` of `total` has begun."""
        ...

    def advanced(self, share: float) -> None:
        """The run has done this `share` (0 to 1) of its work."""
        ...

    def ended(self, summary: str) -> None:
        """The run has ended, like this."""
        ...


@dataclass(slots=True)
class Experiment:
    """What came out: the runs in their order. `reference` is the run without checkpoints that
    `load` refers to, if there is one."""

    measured: list[MeasuredRun] = field(default_factory=list)
    killed: list[KilledRun] = field(default_factory=list)
    load: float | None = None
    reference: Life | None = None

    @property
    def first(self) -> Life | None:
        """The run that all others have their records from; None before it has ended."""
        return self.reference or (self.measured[0].life if self.measured else None)

    def runs_of(self, mode: Mode) -> list[MeasuredRun]:
        """The undisturbed runs of a mode."""
        return [run for run in self.measured if run.mode == mode]

    def statistics_of(self, mode: Mode) -> list[CheckpointStatistics]:
        """Those of all checkpoints of these runs."""
        return [one for run in self.runs_of(mode) for one in run.life.statistics]

    @property
    def limits(self) -> Mapping[str, int]:
        """How many records each reader of a source gives out: known after the first run."""
        assert self.first is not None
        assert self.first.ended is not None
        read = self.first.ended.read
        if self.load is None:
            return read
        return {
            reader: max(round(count * self.load), 1) if count else 0
            for reader, count in read.items()
        }

    @property
    def sustainable(self) -> Mapping[str, float]:
        """Records per second of each reader that the job worked off without checkpoints."""
        assert self.reference is not None
        ended = self.reference.ended
        assert ended is not None
        return {reader: count / ended.seconds for reader, count in ended.read.items() if count}

    @property
    def rates(self) -> Mapping[str, float]:
        """Records per second that each reader gives out; empty for as many as are taken."""
        if self.load is None:
            return {}
        return {reader: rate * self.load for reader, rate in self.sustainable.items()}

    def undisturbed_seconds(self, mode: Mode) -> float:
        """How long the fastest run of `mode` that ended took; of any mode, if none did."""
        ended = [(run.mode, run.life.ended.seconds) for run in self.measured if run.life.ended]
        own = [seconds for of, seconds in ended if of == mode]
        return min(own or [seconds for _, seconds in ended])


async def run_experiment(
    plan: Plan, observer: Observer, reference: Life | None = None
) -> Experiment:
    """Run everything, one after the other; with a `load`, what it refers to first, unless that is
    given as `reference`.

    Raises JobFailed if the first run does not end: then no load is known."""
    return await _Conductor(plan, observer, reference).run()


async def run_reference(plan: Plan, observer: Observer) -> Life:
    """Find out what the job sustains: run it without checkpoints.

    Raises JobFailed if that does not end."""
    return await _Conductor(plan, observer, None).refer()


def count_of_runs(plan: Plan, reference: Life | None = None) -> int:
    """How many runs that will be."""
    first = plan.load is not None and reference is None
    return first + len(plan.runs) + (len(plan.modes) if plan.kills else 0)


class _Conductor:
    def __init__(self, plan: Plan, observer: Observer, reference: Life | None) -> None:
        self._plan = plan
        self._observer = observer
        self._clock: Clock = SystemClock()
        self._experiment = Experiment(load=plan.load, reference=reference)
        self._total = count_of_runs(plan, reference)
        self._number = 0

    async def run(self) -> Experiment:
        if self._plan.load is not None and self._experiment.reference is None:
            await self.refer()
        for mode in self._plan.runs:
            await self._measure(mode)
        for mode in self._plan.modes if self._plan.kills else ():
            await self._kill(mode)
        return self._experiment

    async def refer(self) -> Life:
        """Find out what the job sustains: without checkpoints, as many records as it takes."""
        order = await self._begin(self._plan.modes[0], "no checkpoints", periodic=False)
        life = await self._live(order, self._patience(), None)
        _check_first("no checkpoints", life)
        self._experiment.reference = life
        total = sum(self._experiment.sustainable.values())
        self._observer.ended(f"{life.records:,} records, {total:,.0f} records/s sustained")
        return life

    async def _measure(self, mode: Mode) -> None:
        order = await self._begin(mode, "undisturbed", rates=self._experiment.rates)
        life = await self._live(order, self._patience(), None)
        if self._experiment.first is None:
            _check_first(mode, life)
        output: Output | None = None
        breakdowns: Sequence[Breakdown] = ()
        if life.ended:
            output = await _output_of(order)
            breakdowns = await asyncio.to_thread(read_breakdowns, Path(order.folder))
        self._experiment.measured.append(MeasuredRun(mode, life, output, breakdowns))
        records = f"{life.records:,} records, "
        self._observer.ended(records + _summary(life))

    async def _kill(self, mode: Mode) -> None:
        order = await self._begin(mode, "killed and restored")
        # A killed run has no pace: it reads as fast as it can, whatever the others did.
        usual = self._experiment.undisturbed_seconds(mode) * min(self._plan.load or 1.0, 1.0)
        part = random.uniform(_KILL_FROM, _KILL_TO)
        later = random.uniform(0, _KILL_JITTER) * usual
        plan = KillPlan(part * usual, _KILL_LATEST * usual, later)
        before = await self._live(order, self._patience(), plan)
        after = None
        if before.killed is not None:
            after = await self._live(order, self._patience(), None)
        last = after or before
        output = await _output_of(order) if last.ended else None
        self._experiment.killed.append(KilledRun(mode, before, after, output))
        killed = f"killed after {before.killed:.1f} s, then " if after else ""
        self._observer.ended(killed + _summary(last))

    async def _begin(
        self,
        mode: Mode,
        what: str,
        *,
        periodic: bool = True,
        rates: Mapping[str, float] | None = None,
    ) -> RunOrder:
        self._number += 1
        told = f"{mode}, {what}" if periodic else what
        self._observer.began(self._number, self._total, told)
        plan, first = self._plan, self._experiment.first is None
        folder = plan.folder / f"{self._number}-{mode}"
        await asyncio.to_thread(folder.mkdir, parents=True)
        return RunOrder(
            folder=str(folder),
            mode=mode,
            every=plan.every,
            seconds=plan.seconds if first and plan.records is None else None,
            records=plan.records if first else None,
            limits={} if first else self._experiment.limits,
            channel_capacity=plan.channel_capacity,
            sink_delay=plan.sink_delay,
            alignment_timeout=plan.alignment_timeout,
            periodic=periodic,
            rates=rates or {},
        )

    def _patience(self) -> float:
        first = self._experiment.first
        if first is not None:
            return _PATIENCE * ((first.started or 0) + (first.ended.seconds if first.ended else 0))
        return _PATIENCE * self._plan.seconds if self._plan.records is None else 3600.0

    async def _live(self, order: RunOrder, patience: float, kill: KillPlan | None) -> Life:
        """Let a child live until it ends, is killed as planned, or patience is at its end."""
        life = Life()
        patience += _PATIENCE_SECONDS
        until = self._clock.monotonic() + patience
        async with start_child(self._plan.command, order, self._clock) as child:
            try:
                await self._listen(child, life, order, until, kill)
            except TimeoutError:
                life.error = f"cut off after {patience:.0f} s: the job had not ended"
        if life.ended is None and life.killed is None and life.error is None:
            printed = await end_of_log(Path(order.folder))
            life.error = f"the process ended without a result; it printed:\n{printed}"
        return life

    async def _listen(
        self, child: Child, life: Life, order: RunOrder, until: float, kill: KillPlan | None
    ) -> None:
        """Take in what the child tells until it has ended, or is to be killed now."""
        async with aclosing(child.messages(until)) as messages:
            async for at, message in messages:
                life.add(at - child.born, message)
                self._observer.advanced(self._share(life, order))
                if kill is not None and life.ended is None and kill.is_due(life):
                    await asyncio.sleep(kill.later)
                    await child.kill()
                    life.killed = self._clock.monotonic() - child.born - (life.started or 0.0)
                    return

    def _share(self, life: Life, order: RunOrder) -> float:
        if life.ended is not None:
            return 1.0
        if order.seconds is not None:
            return min((life.samples[-1].at if life.samples else 0.0) / order.seconds, 0.99)
        expected = sum(order.limits.values()) or order.records or 1
        return min(life.records / expected, 0.99)


def _check_first(what: str, life: Life) -> None:
    if life.ended is None:
        raise JobFailed(
            f"the first run, {what}, did not end, so there is nothing to compare: {life.error}"
        )


async def _output_of(order: RunOrder) -> Output:
    return await asyncio.to_thread(read_output, Path(order.folder))


def _summary(life: Life) -> str:
    if life.ended is None:
        return life.error or "did not end"
    return f"all worked off in {life.ended.seconds:.1f} s"
