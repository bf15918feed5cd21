"""What a checkpoint takes beside Flink's, when every queue is full or 500 calls are under way.

Flink is the only peer with unaligned checkpoints: PyFlink in its modes, and the engine without
Python. Each configuration runs in a fresh process with a checkpoint each second; those triggered
after the warm-up are told by the engine's own statistics. The unaligned ones, which are judged, run
once more in reversed order. Flink's times end at the last acknowledgement, when files are written
but not synchronised; streamcp's when the completion is synchronised to disk.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Run, Suite, skipped
from benchmarks.peers.asking import EngineFailed, ask
from benchmarks.peers.catalogue import Engine, default_home
from benchmarks.peers.taken import Goals, Taken, compared, rows_of

# As many queued records as PyFlink holds: its aligned checkpoints took 14 s at 2,000 records/s.
BACKPRESSURE_CAPACITY = 7000
# As many queued records as Flink holds: 3 MB of them, in 16 channels of each of two exchanges.
FLINK_CAPACITY = 85
OUTSTANDING_CAPACITY = 1000
RECORDS = 10**12  # of PyFlink's source: more than it can ever read

STREAMCP = Engine("streamcp", "on_streamcp_checkpoints", None, {})
THREAD = Engine(
    "PyFlink, thread mode", "on_pyflink_checkpoints", "pyflink", {}, options={"mode": "thread"}
)
PROCESS = Engine(
    "PyFlink, process mode", "on_pyflink_checkpoints", "pyflink", {}, options={"mode": "process"}
)
JVM = Engine("Flink without Python", "on_flink_jvm", "pyflink", {})

MODES = ("unaligned", "timeout 100 ms", "aligned")  # in Flink's words
ADAPTIVE = {"timeout 100 ms": "adaptive"}  # what streamcp calls it; its timeout is the same


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rounds of the unaligned modes; seconds before the first checkpoint that counts and with
    checkpoints that count, longer ones where a checkpoint takes many seconds; calls under way, and
    how long each takes; where the peers are installed."""

    rounds: int
    warm_up: float
    seconds: float
    long_seconds: float
    calls: int
    call_seconds: float
    modes: tuple[str, ...] = MODES
    home: str = field(default_factory=lambda: str(default_home()))


FULL = Sizes(2, 5.0, 12.0, 35.0, 500, 2.0)
QUICK = Sizes(1, 3.0, 8.0, 12.0, 500, 2.0, ("unaligned",))


NOTHING = Goals()


@dataclass(frozen=True)
class Setting:
    """One engine in one mode; `goals` is what streamcp must reach beside it in the same mode."""

    engine: Engine
    mode: str
    options: Mapping[str, Any]
    goals: Goals = NOTHING
    words: str = ""

    @property
    def name(self) -> str:
        """As the rows call it."""
        mode = ADAPTIVE.get(self.mode, self.mode) if self.engine is STREAMCP else self.mode
        return f"{self.engine.name}{self.words}, {mode}"


async def take(run: Run[Sizes], workload: str, setting: Setting) -> Taken | Row:
    """Run one configuration; a row says why it gave no figures."""
    engine, sizes, home = setting.engine, run.sizes, Path(run.sizes.home)
    if not engine.installed_in(home):
        return skipped(setting.name, engine.remedy(home))
    run.say(setting.name)
    mode = ADAPTIVE.get(setting.mode, setting.mode) if engine is STREAMCP else setting.mode
    options = {
        "checkpoints": mode,
        "every": "1s",
        "warm_up": sizes.warm_up,
        "seconds": sizes.long_seconds if setting.mode == "aligned" else sizes.seconds,
        **setting.options,
    }
    try:
        answer = await ask(engine, home, workload, RECORDS, options)
    except EngineFailed as error:
        if engine is STREAMCP:
            raise
        return skipped(setting.name, str(error))
    return Taken.of(setting.name, answer.extra)


async def take_all(
    run: Run[Sizes], workload: str, settings: Sequence[Setting]
) -> dict[str, Taken | Row]:
    """Run all, and the unaligned ones once more per further round."""
    found: dict[str, Taken | Row] = {}
    again = [one for one in settings if one.mode == "unaligned"]
    for number in range(run.sizes.rounds):
        for setting in (again[::-1] if number % 2 else again) if number else settings:
            one, before = await take(run, workload, setting), found.get(setting.name)
            both = isinstance(one, Taken) and isinstance(before, Taken)
            found[setting.name] = before.and_also(one) if both else one  # type: ignore[union-attr,arg-type]
    run.keep(
        "checkpoints",
        {name: dataclasses.asdict(one) for name, one in found.items() if isinstance(one, Taken)},
    )
    return found


async def beside(
    run: Run[Sizes], workload: str, capacity: int, peers: Sequence[Setting], **options: Any
) -> list[Row]:
    """Rows of streamcp in each mode that a peer has, then of each peer beside the same mode."""
    modes = list(dict.fromkeys(one.mode for one in peers))
    ours = {mode: Setting(STREAMCP, mode, {"capacity": capacity, **options}) for mode in modes}
    found = await take_all(run, workload, [*ours.values(), *peers])
    rows: list[Row] = []
    for setting in (*ours.values(), *peers):
        one, own = found[setting.name], found[ours[setting.mode].name]
        if isinstance(one, Row) or isinstance(own, Row):
            rows += [one for one in (one,) if isinstance(one, Row)]
            continue
        rows += rows_of(one)
        if one is not own:
            rows += compared(own, one, setting.goals, run.seed)
    return rows


# ---- the benchmarks


async def backpressure(run: Run[Sizes]) -> Sequence[Row]:
    """How long does a checkpoint take behind a slow Python step, beside PyFlink's?"""
    peers = [
        Setting(
            engine, mode, {"bundles": bundles}, goals if mode == "unaligned" else NOTHING, words
        )
        for engine, bundles, words, goals in (
            (THREAD, "default", "", Goals(3.0, 5.0)),
            (PROCESS, "default", ", default bundles", Goals(100.0)),
            (PROCESS, "small", ", small bundles", NOTHING),
        )
        for mode in run.sizes.modes
    ]
    return await beside(run, "backpressure", BACKPRESSURE_CAPACITY, peers)


async def jvm(run: Run[Sizes]) -> Sequence[Row]:
    """How long does a checkpoint take beside Flink's engine without Python, at as many records?"""
    goals = {"unaligned": Goals(3.0, 5.0)}
    peers = [Setting(JVM, mode, {}, goals.get(mode, NOTHING)) for mode in run.sizes.modes]
    return await beside(run, "flink_topology", FLINK_CAPACITY, peers)


async def outstanding(run: Run[Sizes]) -> Sequence[Row]:
    """How long does a checkpoint take while 500 calls are under way, beside PyFlink's?"""
    # Long enough that one of PyFlink's can end.
    calls = {
        "calls": run.sizes.calls,
        "call_seconds": run.sizes.call_seconds,
        "seconds": run.sizes.long_seconds / 2,
    }
    peers = [
        Setting(
            PROCESS,
            "unaligned",
            {"bundles": bundles, **calls},
            Goals(100.0),
            f", {bundles} bundles",
        )
        for bundles in ("default", "small")
    ]
    return await beside(run, "outstanding", OUTSTANDING_CAPACITY, peers, **calls)


def _resize(sizes: Sizes, options: argparse.Namespace) -> Sizes:
    return dataclasses.replace(sizes, home=getattr(options, "peers", None) or sizes.home)


SUITE = Suite(
    "peers_checkpoints",
    {"backpressure": backpressure, "jvm": jvm, "outstanding": outstanding},
    FULL,
    QUICK,
    resize=_resize,
)
