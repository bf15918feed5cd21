"""What a checkpoint takes beside Flink's, when every queue is full or 500 calls are under way.

Flink is the only peer with unaligned checkpoints: PyFlink in its modes, and the JVM engine without
Python. Each configuration runs in a fresh process with a checkpoint each second; those triggered
within a time after the warm-up are told by the engine's own statistics. Flink's times end at the last
acknowledgement, when files are written but not synchronised; streamcp's when the completion is
synchronised to disk.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import (
    Row,
    Run,
    Suite,
    at_least,
    median_row,
    ratio_of_medians,
    skipped,
)
from benchmarks.peers.asking import EngineFailed, ask
from benchmarks.peers.catalogue import Engine, default_home

# As many queued records as PyFlink holds: its aligned checkpoints took 14 s at 2,000 records/s.
BACKPRESSURE_CAPACITY = 7000
# As many queued records as Flink holds: 3 MB of them, in 16 channels of each of two exchanges.
FLINK_CAPACITY = 85
RECORDS = 10**12  # of PyFlink's source: more than it can ever read

STREAMCP = Engine("streamcp", "on_streamcp_checkpoints", None, {})
THREAD = Engine("PyFlink, thread mode", "on_pyflink", "pyflink", {}, options={"mode": "thread"})
PROCESS = Engine("PyFlink, process mode", "on_pyflink", "pyflink", {}, options={"mode": "process"})
JVM = Engine("Flink without Python", "on_flink_jvm", "pyflink", {})

FLINK_MODES = ("unaligned", "timeout 100 ms", "aligned")
STREAMCP_MODES = ("unaligned", "adaptive", "aligned")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Seconds before the first checkpoint that counts and with checkpoints that count; longer ones
    where a checkpoint takes many seconds; calls under way, and how long each takes."""

    warm_up: float
    seconds: float
    long_seconds: float
    calls: int
    call_seconds: float
    flink_modes: tuple[str, ...] = FLINK_MODES
    home: str = field(default_factory=lambda: str(default_home()))


FULL = Sizes(5.0, 20.0, 35.0, 500, 2.0)
QUICK = Sizes(3.0, 4.0, 6.0, 500, 2.0, ("unaligned",))


@dataclass(frozen=True)
class Taken:
    """The checkpoints of one run: seconds and captured bytes of the complete ones, and the age of
    what had not ended."""

    name: str
    seconds: tuple[float, ...]
    size: tuple[float, ...]
    failed: int
    unfinished: tuple[float, ...]

    @classmethod
    def of(cls, name: str, extra: Mapping[str, Any]) -> Taken:
        """Read what an engine told."""
        taken = extra["checkpoints"]
        return cls(
            name,
            tuple(one["seconds"] for one in taken),
            tuple(one["bytes"] for one in taken),
            extra["failed"],
            tuple(extra["unfinished"]),
        )

    @property
    def longest(self) -> float:
        """The longest of all, also if it had not ended."""
        return max((*self.seconds, *self.unfinished), default=0.0)


async def take(
    run: Run[Sizes], engine: Engine, workload: str, name: str, options: Mapping[str, Any]
) -> Taken | Row:
    """Run one configuration; a row says why it gave no figures."""
    home = Path(run.sizes.home)
    if not engine.installed_in(home):
        return skipped(name, engine.remedy(home))
    run.say(name)
    chosen = {"warm_up": run.sizes.warm_up, "seconds": run.sizes.seconds, "every": "1s", **options}
    try:
        answer = await ask(engine, home, workload, RECORDS, chosen)
    except EngineFailed as error:
        if engine is STREAMCP:
            raise
        return skipped(name, str(error))
    run.keep(name, answer.extra)
    return Taken.of(name, answer.extra)


def rows_of(taken: Taken) -> list[Row]:
    """Median and maximum of one configuration, in milliseconds."""
    how_many = f"{len(taken.seconds)} completed"
    if taken.failed:
        how_many += f", {taken.failed} failed"
    if taken.unfinished:
        how_many += f", one not after {max(taken.unfinished):.1f} s"
    if not taken.seconds:
        return [skipped(f"{taken.name}, p50", f"no checkpoint ended: {how_many}")]
    size = statistics.median(taken.size)
    detail = f"{how_many}; {size / 1e6:.2f} MB in flight"
    return [
        median_row(f"{taken.name}, p50", [s * 1000 for s in taken.seconds], "ms", detail=detail),
        Row(f"{taken.name}, max", max(taken.seconds) * 1000, "ms"),
    ]


def compared(
    ours: Taken, peer: Taken, seed: int, *, p50: float | None = None, longest: float | None = None
) -> list[Row]:
    """How many times longer the peer's checkpoints take. Where none of the peer's ended, the age of
    the one under way is what can be said."""
    name = f"{peer.name} / {ours.name}"
    maximum = peer.longest / ours.longest
    target = None if longest is None else at_least(longest)
    rows = [Row(f"{name}, max", maximum, "×", target=target)]
    if peer.seconds:
        target = None if p50 is None else at_least(p50)
        row = ratio_of_medians(f"{name}, p50", peer.seconds, ours.seconds, target=target, seed=seed)
        faster = "the peer is faster" if row.value < 1 else ""
        rows.insert(0, dataclasses.replace(row, detail=faster))
    return rows


def _targets_of(peer: Engine, bundles: str, mode: str) -> dict[str, float]:
    """What streamcp's unaligned checkpoints must be beside those of a peer."""
    if mode != "unaligned":
        return {}
    if peer is PROCESS:
        return {"p50": 100.0} if bundles == "default" else {}
    return {"p50": 3.0, "longest": 5.0}


# ---- the benchmarks


async def _streamcp(
    run: Run[Sizes], workload: str, capacity: int, modes: Sequence[str], **options: Any
) -> list[Taken]:
    taken = []
    for mode in modes:
        chosen = {"checkpoints": mode, "capacity": capacity, **options}
        if mode == "aligned":
            chosen["seconds"] = run.sizes.long_seconds
        one = await take(run, STREAMCP, workload, f"streamcp, {mode}", chosen)
        assert isinstance(one, Taken)
        taken.append(one)
    return taken


def _beside(
    ours: Taken,
    peer: Taken | Row,
    seed: int,
    p50: float | None = None,
    longest: float | None = None,
) -> list[Row]:
    if isinstance(peer, Row):
        return [peer]
    return [*rows_of(peer), *compared(ours, peer, seed, p50=p50, longest=longest)]


async def backpressure(run: Run[Sizes]) -> Sequence[Row]:
    """How long does a checkpoint take behind a slow Python step, beside PyFlink's?"""
    ours = await _streamcp(run, "backpressure", BACKPRESSURE_CAPACITY, STREAMCP_MODES)
    rows = [row for one in ours for row in rows_of(one)]
    for engine, bundles in ((THREAD, "default"), (PROCESS, "default"), (PROCESS, "small")):
        for mode in run.sizes.flink_modes:
            name = f"{engine.name}{_bundles(engine, bundles)}, {mode}"
            options: dict[str, Any] = {"checkpoints": mode, "bundles": bundles}
            if mode == "aligned":
                options["seconds"] = run.sizes.long_seconds
            peer = await take(run, engine, "backpressure", name, options)
            own = ours[FLINK_MODES.index(mode)]
            rows += _beside(own, peer, run.seed, **_targets_of(engine, bundles, mode))
    return rows


def _bundles(engine: Engine, bundles: str) -> str:
    return f", {bundles} bundles" if engine is PROCESS else ""


async def jvm(run: Run[Sizes]) -> Sequence[Row]:
    """How long does a checkpoint take beside Flink's engine without Python, at as many records?"""
    ours = await _streamcp(run, "flink_topology", FLINK_CAPACITY, STREAMCP_MODES)
    rows = [row for one in ours for row in rows_of(one)]
    for mode in run.sizes.flink_modes:
        peer = await take(run, JVM, "flink_topology", f"{JVM.name}, {mode}", {"checkpoints": mode})
        own = ours[FLINK_MODES.index(mode)]
        rows += _beside(own, peer, run.seed, **_targets_of(JVM, "", mode))
    return rows


async def outstanding(run: Run[Sizes]) -> Sequence[Row]:
    """How long does a checkpoint take while 500 calls are under way, beside PyFlink's?"""
    calls = {"calls": run.sizes.calls, "call_seconds": run.sizes.call_seconds}
    (ours,) = await _streamcp(run, "outstanding", 1000, ["unaligned"], **calls)
    peer = await take(run, PROCESS, "outstanding", f"{PROCESS.name}, unaligned", calls)
    return [*rows_of(ours), *_beside(ours, peer, run.seed, p50=100.0)]


def _resize(sizes: Sizes, options: argparse.Namespace) -> Sizes:
    return dataclasses.replace(sizes, home=getattr(options, "peers", None) or sizes.home)


SUITE = Suite(
    "peers_checkpoints",
    {"backpressure": backpressure, "jvm": jvm, "outstanding": outstanding},
    FULL,
    QUICK,
    resize=_resize,
)
