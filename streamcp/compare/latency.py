"""How late records reach the sinks: from when they were due until they were written.

A record carries no time of its own. In a job without event time each gets the time at which it was
due as its timestamp: it goes with the record through every step, to all that comes of it. A job
that has event time, or asks for the time, would become another one by that: there only the waiting
before the sources can be told.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from streamcp.compare.histogram import Histogram
from streamcp.compare.messages import Latencies
from streamcp.compare.pacing import Pace
from streamcp.elements import ListTimestamp
from streamcp.graph.logical import LogicalGraph, told
from streamcp.operators.steps import MachineStep, ProcessStep, SinkStep, SourceStep
from streamcp.operators.ttl import Ttl
from streamcp.operators.watermarks import Stamped, Stamper, Watermarks


def why_not_stamped(graph: LogicalGraph) -> str | None:
    """Say what forbids that the records of a job get stamps; None if nothing does."""
    for node in graph.nodes:
        spec = node.spec
        if isinstance(spec, SourceStep) and spec.watermarks is not None:
            return f"{told(node)} has event time of its own"
        if isinstance(spec, MachineStep) or getattr(spec, "on_timer", None) is not None:
            return f"{told(node)} has timers, which stamps would set to another clock"
    if not any(isinstance(node.spec, SinkStep) for node in graph.nodes):
        return "the job has no sink"
    return None


def let_stamps_through(graph: LogicalGraph) -> None:
    """Give every source a `PacedWatermarks`, and every step what it means: its records are timed.
    State that expires by the clock of the machine goes on doing so."""
    for node in graph.nodes:
        spec = node.spec
        if isinstance(spec, SourceStep):
            node.spec = dataclasses.replace(spec, watermarks=PacedWatermarks())
        elif isinstance(spec, SinkStep):
            node.spec = dataclasses.replace(spec, timestamps=True)
        elif isinstance(spec, ProcessStep) and spec.ttl is not None:
            node.spec = dataclasses.replace(spec, ttl=Ttl(spec.ttl.after, clock="processing"))
        node.__post_init__()  # whether it is timed follows from its inputs


class PacedWatermarks(Watermarks[Any]):
    """For a source of `pacing.paced`, whose records are pairs with their stamps."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(lambda pair: int(pair[1]))

    def stamper(self, label: str) -> Stamper[Any]:
        """Make what takes the pairs of one split apart."""
        return _PairStamper(self, label, None, None)


class _PairStamper(Stamper[Any]):
    """A pair is a record and its stamp; stamps of a reader never go back."""

    __slots__ = ()

    def stamp(self, records: list[Any], now_ms: int) -> Stamped[Any]:
        """Take the pairs apart."""
        if records:
            self.watermark = max(self.watermark, records[-1][1] - 1)
        return Stamped([record for record, _ in records], [stamp for _, stamp in records], [])


class LatencyMeter:
    """Counts how late everything is that is written to the sinks of a process.

    `due`: since the time at which it was due. `given`: since it was given out by its source, which
    is what a job without a schedule would have measured. `visible`: since it was due until it was
    committed. `seconds`: the first, by the second in which it was written."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._uncommitted: dict[str, Counter[int]] = {}
        self.due, self.given, self.visible = Histogram(), Histogram(), Histogram()
        self.seconds: dict[int, Histogram] = {}

    def written(self, transaction: str, stamps: Iterable[int]) -> None:
        """Records with these stamps were written now."""
        counts = Counter(_flat(stamps))
        now = self._pace.now()
        second = self.seconds.setdefault(int(now), Histogram())
        for stamp, count in counts.items():
            late = now - self._pace.since(stamp)
            self.due.add(late, count)
            second.add(late, count)
            self.given.add(now - self._pace.first_given.get(stamp, now), count)
        self._uncommitted.setdefault(transaction, Counter()).update(counts)

    def committed(self, transaction: str) -> None:
        """What was written to a transaction became visible now."""
        now = self._pace.now()
        for stamp, count in self._uncommitted.pop(transaction, Counter()).items():
            self.visible.add(now - self._pace.since(stamp), count)

    def told(self) -> Latencies:
        """Give all counts."""
        return Latencies(
            due=self.due.as_plain(),
            given=self.given.as_plain(),
            visible=self.visible.as_plain(),
            waited=self._pace.waited.as_plain(),
            late=self._pace.late.as_plain(),
            seconds={str(one): counts.as_plain() for one, counts in sorted(self.seconds.items())},
        )


def _flat(stamps: Iterable[Any]) -> Iterator[int]:
    """A list of records has the stamps of all of them."""
    for stamp in stamps:
        if isinstance(stamp, ListTimestamp):
            yield from _flat(stamp.each)
        else:
            yield stamp


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """What was measured of latency in runs under the same load.

    `unstamped` says why nothing but `waited` and `late` was, if so. `kept_up` says whether the job
    took the load: if its backlog grew, percentiles tell how long the run was, and nothing else."""

    due: Histogram
    given: Histogram
    visible: Histogram
    waited: Histogram
    late: Histogram
    kept_up: bool
    unstamped: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Give the percentiles as plain JSON values, in seconds; the counts stand with the runs."""
        names = ("due", "given", "visible", "waited", "late")
        told = {name: summary(getattr(self, name)) for name in names}
        return told | {"kept_up": self.kept_up, "unstamped": self.unstamped}


SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
"""The percentiles that are told, where there are enough values."""


def summary(counts: Histogram) -> dict[str, float | int | None]:
    """The count, the percentiles that tell something, and the maximum."""
    percentiles = {name: counts.percentile(share) for name, share in SHARES.items()}
    return {"count": counts.count, **percentiles, "max": counts.maximum}


def latency_of(told: Sequence[Latencies], *, kept_up: bool) -> Latency | None:
    """Add up what several runs told; None if none of them told anything."""
    if not told:
        return None

    def whole(name: str) -> Histogram:
        parts: list[Mapping[str, int]] = [getattr(one, name) for one in told]
        return Histogram.sum(map(Histogram.from_plain, parts))

    due, given, visible = whole("due"), whole("given"), whole("visible")
    waited, late, unstamped = whole("waited"), whole("late"), told[0].unstamped
    return Latency(due, given, visible, waited, late, kept_up, unstamped)
