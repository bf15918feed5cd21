"""The cell of all closed-loop workloads: stay in saturated jobs, and take checkpoints in turns.

A process is told a list of stays. A stay is one job; its visits are so many checkpoints in one mode
each. Modes take turns in the order A B B A, and the order of the stays changes from process to
process, so that a drift of the machine's speed hits all alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TypeAlias

from benchmarks.harness import Run, in_fresh_process
from benchmarks.harness.cells import Cell
from benchmarks.workloads.saturation import Saturated, saturated
from benchmarks.workloads.topology import Chain, Topology
from streamcp.config import Mode

Entry: TypeAlias = dict[str, Any]
"""What is kept of one checkpoint: JSON values, for rows and figures."""

TIMEOUT: Final = 0.1  # of adaptive checkpoints, seconds: the default of streamcp

UNALIGNED: Final = "unaligned"
ALIGNED: Final = "aligned"
ADAPTIVE: Final = "adaptive, no prediction"
PREDICTING: Final = "adaptive"
SMALL: Final = "aligned, small capacity"
_MODES: Mapping[str, Mode] = {
    UNALIGNED: "unaligned",
    ALIGNED: "aligned",
    ADAPTIVE: "adaptive",
    PREDICTING: "adaptive",
    SMALL: "aligned",
}


@dataclass(frozen=True, slots=True)
class Visit:
    """So many checkpoints of one kind (UNALIGNED and so on), with this timeout."""

    kind: str
    count: int
    timeout: float = TIMEOUT


@dataclass(frozen=True, slots=True)
class Stay:
    """One saturated job, told by the parameters of its topology, and what is taken of it. With
    `spread`, triggers are drawn from so many seconds behind the gate."""

    setting: str
    topology: Mapping[str, Any]
    visits: Sequence[Visit]
    predict: bool = False
    spread: float = 0.0
    seed: str = ""


def visits_of(unaligned: int, adaptive: int, aligned: int) -> list[Visit]:
    """So many checkpoints of the three kinds that most workloads compare."""
    return [Visit(UNALIGNED, unaligned), Visit(ADAPTIVE, adaptive), Visit(ALIGNED, aligned)]


def in_turns(visits: Sequence[Visit]) -> list[Visit]:
    """Half of each visit, and then the other halves in the opposite order: A B B A."""
    there = [replace(visit, count=math.ceil(visit.count / 2)) for visit in visits]
    back = [replace(visit, count=visit.count // 2) for visit in reversed(visits)]
    return [visit for visit in there + back if visit.count]


async def take_of_chain(spec: Any) -> list[Entry]:
    """The cell of workloads whose topology is a chain."""
    return await take(spec, Chain)


async def take(spec: Sequence[Mapping[str, Any]], kind: type[Topology]) -> list[Entry]:
    """Make all stays, in this process, with topologies of this kind."""
    entries: list[Entry] = []
    for one in spec:
        visits = [Visit(**visit) for visit in one["visits"]]
        stay = Stay(**{**one, "visits": visits})
        entries += await _stay(stay, kind(**stay.topology))
    return entries


async def _stay(stay: Stay, topology: Topology) -> list[Entry]:
    entries: list[Entry] = []
    async with saturated(topology, timeout=TIMEOUT, predict=stay.predict) as (job, folder):
        chance = random.Random(stay.seed)
        for visit in stay.visits:
            enter(job, visit)
            for _ in range(visit.count):
                figures = await job.take(folder, after=stay.spread * chance.random())
                entries.append(_entry(stay, topology, visit, figures))
    return _with_few_tasks(entries)


def _with_few_tasks(entries: Sequence[Entry]) -> list[Entry]:
    """Of each kind the first checkpoint is told subtask by subtask; all would be too much."""
    first = {entry["mode"]: entry for entry in reversed(entries)}
    return [entry if entry is first[entry["mode"]] else entry | {"tasks": []} for entry in entries]


def enter(job: Saturated, visit: Visit) -> None:
    job.running.set_mode(_MODES[visit.kind])
    job.running.set_alignment_timeout(f"{visit.timeout}s")


def _entry(stay: Stay, topology: Topology, visit: Visit, figures: Entry) -> Entry:
    law = topology.aligned_delay(figures["rate"])
    return {
        "mode": visit.kind,
        "setting": stay.setting,
        "timeout": visit.timeout,
        "record_time": topology.service,
        "capacity": topology.capacity,
        "law": law,
        "predicted": predicted(visit, topology, law),
    } | figures


def predicted(visit: Visit, topology: Topology, law: float) -> float:
    """The barrier delay by the laws: the dashed lines."""
    overtaking = (topology.hops + 1) * topology.service
    match _MODES[visit.kind]:
        case "aligned":
            return law
        case "unaligned":
            return overtaking
        case _:
            return min(law, visit.timeout + overtaking)


async def in_processes(
    run: Run[Any],
    cell: Cell,
    stays: Iterable[Stay],
    processes: int,
    *,
    patience: float = 600.0,
) -> list[Entry]:
    """Make these stays in so many fresh processes, one after another, each time the other way
    round."""
    there = list(stays)
    entries: list[Entry] = []
    for process in range(processes):
        order = there if process % 2 == 0 else [_reversed(stay) for stay in reversed(there)]
        run.say(f"{there[0].setting}, process {process + 1} of {processes}")
        seed = f"{run.seed} {process}"
        spec = [asdict(replace(stay, visits=in_turns(stay.visits), seed=seed)) for stay in order]
        taken = await in_fresh_process(cell, spec, patience=patience)
        entries += [entry | {"process": process} for entry in taken]
    return entries


def _reversed(stay: Stay) -> Stay:
    return replace(stay, visits=stay.visits[::-1])


def completed(entries: Iterable[Entry], mode: str, setting: str | None = None) -> list[Entry]:
    """Those that completed, of one kind and one setting (None: all settings)."""
    return [
        entry
        for entry in entries
        if entry["mode"] == mode
        and setting in (None, entry["setting"])
        and entry["outcome"] == "completed"
    ]
