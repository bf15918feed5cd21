"""What a record waits at a load that the job sustains, with checkpoints.

Open loop: every figure is of intended times. The reference of all modes is the maximum sustainable
throughput without checkpoints. The interval of a percentile is by bootstrap over seconds, each
with one checkpoint, of all processes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import Row, Run, Suite, at_most, bootstrap_interval, check, skipped
from benchmarks.harness.histogram import Histogram, merged, quantile
from benchmarks.workloads.running import MODES, Load, Ran, most_sustained, run_open

P99 = 10.0  # milliseconds
P999 = 30.0
JUDGED = (0.5, 0.8)  # above, queues build up whatever a checkpoint costs


@dataclass(frozen=True, slots=True)
class Sizes:
    """Seconds of a probe and of a run, each behind some to warm up; how many runs there are."""

    probe: int
    probe_warm: float
    rush: int
    seconds: int
    warm: float
    processes: int
    shares: Sequence[float] = (0.5, 0.8, 0.95)
    modes: Sequence[str] = MODES
    rate: int | None = None


FULL = Sizes(probe=4, probe_warm=1.0, rush=400_000, seconds=5, warm=1.5, processes=3)
QUICK = Sizes(
    *(1, 0.5, 100_000, 1, 0.5, 1), shares=(0.5,), modes=("none", "unaligned"), rate=100_000
)


async def latency(run: Run[Sizes]) -> Sequence[Row]:
    """What is the latency at 50, 80 and 95 % of the highest load, a checkpoint every second?"""
    sizes = run.sizes
    run.say("the highest load that is sustained")
    highest = sizes.rate or await most_sustained(sizes.probe, sizes.probe_warm, sizes.rush)
    cells = await _measure(run, highest)
    rows = [Row("maximum sustainable throughput, no checkpoints", highest, "records/s")]
    for (share, mode), all_ran in cells.items():
        rows += _rows(share, mode, all_ran, run.seed)
    run.keep(
        "runs",
        [
            {"mode": mode, "share": share, "rate": round(share * highest), **ran.as_json()}
            for (share, mode), all_ran in cells.items()
            for ran in all_ran
        ],
    )
    return rows


async def _measure(run: Run[Sizes], highest: int) -> dict[tuple[float, str], list[Ran]]:
    """All modes in one order, and then in the other."""
    sizes = run.sizes
    cells = [(share, mode) for share in sizes.shares for mode in sizes.modes]
    found: dict[tuple[float, str], list[Ran]] = {cell: [] for cell in cells}
    for number in range(sizes.processes):
        for share, mode in cells if number % 2 == 0 else reversed(cells):
            run.say(f"{share:.0%} of {highest:,}/s, {mode}, {number + 1} of {sizes.processes}")
            load = Load(round(share * highest), sizes.seconds, sizes.warm, mode)
            found[share, mode].append(await run_open(load))
    return found


def _rows(share: float, mode: str, all_ran: Sequence[Ran], seed: int) -> list[Row]:
    at = f"{mode}, {share:.0%} of it"
    complete = all(ran.records == ran.due for ran in all_ran)
    rows = [check(f"every record has come, {at}", complete)]
    kept = [ran for ran in all_ran if not ran.rejected_at(0.99)]
    if not kept:
        return [*rows, skipped(f"latency, {at}", f"rejected: {all_ran[0].rejected_at(0.99)}")]
    seconds = [second for ran in kept for second in ran.seconds]
    judged = mode == "unaligned" and share in JUDGED
    detail = _detail(kept, len(all_ran) - len(kept))
    return [
        *rows,
        _row(f"latency p50, {at}", seconds, 0.5, seed, None, ""),
        _row(f"latency p99, {at}", seconds, 0.99, seed, P99 if judged else None, detail),
        _row(f"latency p99.9, {at}", seconds, 0.999, seed, P999 if judged else None, ""),
    ]


def _row(
    name: str,
    seconds: Sequence[Histogram],
    share: float,
    seed: int,
    limit: float | None,
    detail: str,
) -> Row:
    value = quantile(seconds, share)
    if math.isnan(value):
        return skipped(name, "fewer than 100 records beyond it")
    interval = bootstrap_interval([seconds], lambda drawn: quantile(drawn, share), seed)
    return Row(name, value, "ms", interval, None if limit is None else at_most(limit), detail)


def _detail(kept: Sequence[Ran], rejected: int) -> str:
    together = merged(ran.latency for ran in kept)
    naive = merged(ran.naive for ran in kept).quantile(0.99)
    checkpoints = sum(len(ran.checkpoints) for ran in kept)
    text = f"n = {together.count:,}, max {together.maximum:.1f}, naively {naive:.2f} ms"
    text += f"; {checkpoints} checkpoints" if checkpoints else ""
    return text + (f"; {rejected} runs rejected" if rejected else "")


SUITE = Suite("latency", {"latency": latency}, FULL, QUICK)
