"""W2: what a checkpoint takes at loads from half of what the sink can do to twice that.

Open loop with drawn (Poisson) times; the sink is an outside service with a token bucket. Below its
rate queues are nearly empty and all modes are alike; above it they are full, and the modes part. At
more than the service can do there is no latency to tell of, only by how much the backlog grows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Row, Run, Suite, median_row, skipped
from benchmarks.harness.open_loop import bound_by
from benchmarks.harness.recorder import backlog
from benchmarks.harness.sustainable import growth
from benchmarks.workloads.running import Load, Ran, run_open

MODES = ("aligned", "unaligned", "adaptive")
CAPACITY = 100
# Records per second: so few that a machine is far from busy with them.
SERVICE = 2000.0
SHOWN = 0.9  # of so few records no higher percentile can be shown
EVERY = "500ms"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Loads as shares of what the service can do; seconds of each run."""

    seconds: int
    warm: float
    shares: Sequence[float] = (0.5, 0.8, 0.9, 0.95, 1.0, 1.2, 2.0)
    modes: Sequence[str] = MODES


FULL = Sizes(seconds=3, warm=1.0)
QUICK = Sizes(2, 0.5, shares=(0.5, 2.0), modes=("aligned", "unaligned"))


async def load(run: Run[Sizes]) -> Sequence[Row]:
    """How long do checkpoints take at a load of 0.5 to 2 times what the sink can do?"""
    rows, kept = list[Row](), list[dict[str, Any]]()
    for number, share in enumerate(run.sizes.shares):
        for mode in run.sizes.modes if number % 2 == 0 else reversed(run.sizes.modes):
            run.say(f"load {share:g}, {mode}")
            spec = Load(
                round(share * SERVICE),
                run.sizes.seconds,
                run.sizes.warm,
                mode,
                every=EVERY,
                seed=run.seed,
                capacity=CAPACITY,
                service=SERVICE,
                drain=False,
            )
            ran = await run_open(spec)
            rows += _rows(f"{mode}, load {share:g}", spec, ran, shows_latency=share < 1)
            kept.append({"mode": mode, "share": share, **ran.as_json()})
    run.keep("runs", kept)
    return rows


def _rows(at: str, spec: Load, ran: Ran, *, shows_latency: bool) -> list[Row]:
    done = [one for one in ran.checkpoints if one["outcome"] == "completed"]
    done = [one for one in done if one["at"] >= spec.warm]
    waiting = spec.measured(backlog(ran.slices, spec.schedule.times()))
    rows = [
        *_checkpoint_rows(at, done, len(ran.checkpoints)),
        Row(
            f"backlog grows by, {at}",
            growth(waiting, spec.rate),
            "of the load",
            detail=f"others had the job's processor for {ran.waited / ran.took:.0%} of the time",
        ),
    ]
    if shows_latency:
        rows.append(_latency_row(f"latency p90, {at}", ran))
    return rows


def _latency_row(name: str, ran: Ran) -> Row:
    if ran.taken_by_others:
        return skipped(name, f"rejected: {ran.taken_by_others}")
    value = ran.latency.quantile(SHOWN)
    if math.isnan(value):
        return skipped(name, "fewer than 100 records are beyond it")
    return Row(name, value, "ms", detail=bound_by(ran.lateness, value, SHOWN))


def _checkpoint_rows(at: str, done: Sequence[Mapping[str, Any]], begun: int) -> list[Row]:
    if not done:
        return [Row(f"checkpoints completed, {at}", 0, detail=f"{begun} were begun")]
    in_flight = statistics.median(one["in_flight_bytes"] for one in done)
    switched = sum(is_unaligned(one) for one in done)
    return [
        median_row(
            f"barrier delay, {at}",
            [one["barrier_ms"] for one in done],
            "ms",
            detail=f"{len(done)} of {begun} begun; {switched} unaligned or escalated",
        ),
        median_row(
            f"durable delay, {at}",
            [one["durable_ms"] for one in done],
            "ms",
            detail=f"in flight {in_flight / 1000:,.1f} kB",
        ),
    ]


def is_unaligned(checkpoint: Mapping[str, Any]) -> bool:
    """Whether it began unaligned, or went on so."""
    return checkpoint["mode"] == "unaligned" or checkpoint["escalated_after"] is not None


SUITE = Suite("load", {"load": load}, FULL, QUICK)
