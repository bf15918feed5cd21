"""What came out of a comparison, in sentences: the numbers that matter, and nothing that they do
not carry."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

from streamcp.cli import words
from streamcp.compare.figures import Comparison, ModeFigures, compare
from streamcp.compare.latency import SHARES
from streamcp.compare.report.sweeps import completed
from streamcp.compare.sweep import Point, Sweep
from streamcp.config import Mode

# Of the capacity of one channel: what is queued below that holds no barrier up.
_NEARLY_EMPTY = 0.05
# Two medians that are nearer to each other are the same, in two runs each.
_ALIKE = 2.0


def headline(comparison: Comparison, capacity: int) -> list[str]:
    """One comparison: the latency if it was asked for, the delays of barriers, and the reason if
    they are alike."""
    said = [_barriers(comparison.modes), _why_alike(comparison.modes, capacity)]
    if any(mode.latency is not None for mode in comparison.modes):
        said.insert(0, latency(comparison.modes))
    return [one for one in said if one]


def _barriers(modes: Sequence[ModeFigures]) -> str:
    told = [
        f"{words.duration(mode.barrier_delay.p50)} in {mode.mode} mode"
        for mode in modes
        if mode.barrier_delay is not None
    ]
    never = [mode.mode for mode in modes if mode.barrier_delay is None]
    said = []
    if told:
        said.append(
            f"The median checkpoint barrier reached the last subtask after {_listed(told)}."
        )
        said += _times(modes)
    if never:
        said.append(f"No checkpoint completed in {_listed(never)} mode.")
    return " ".join(said)


def _times(modes: Sequence[ModeFigures]) -> list[str]:
    delays = {mode.mode: mode.barrier_delay.p50 for mode in modes if mode.barrier_delay}
    if "aligned" not in delays or "unaligned" not in delays:
        return []
    times = delays["aligned"] / delays["unaligned"]
    return [f"Aligned took {_digits(times)} times as long as unaligned."] if times >= _ALIKE else []


def _why_alike(modes: Sequence[ModeFigures], capacity: int) -> str:
    """Without backpressure the modes do not differ, and that is no merit of one."""
    aligned = next((mode for mode in modes if mode.mode == "aligned"), None)
    if aligned is None or aligned.queued is None or _times(modes):
        return ""
    if aligned.queued.p50 >= _NEARLY_EMPTY * capacity:
        return ""
    return (
        f"The queues were nearly empty ({words.number(aligned.queued.p50)} records, median): there "
        "is little that a barrier could overtake, so the modes hardly differ."
    )


def latency(modes: Sequence[ModeFigures]) -> str:
    """How late the records were: the highest percentile that all modes tell."""
    behind = [mode.mode for mode in modes if mode.latency and not mode.latency.kept_up]
    if behind:
        return (
            f"The load was not taken in {_listed(behind)} mode: what waits grew as long as the run "
            "lasted, so no latency is told. Was the machine busy with something else? Run it "
            "again, or give out less, or run it for longer, with --seconds."
        )
    measured = [(mode.mode, mode.latency) for mode in modes if mode.latency]
    unstamped = next((one.unstamped for _, one in measured if one.unstamped), None)
    if unstamped:
        return f"Only the waiting before the sources was measured: {unstamped}."
    shares = [share for share in SHARES.values() if all(o.due.tells(share) for _, o in measured)]
    if not shares:
        return "There were too few records to tell a percentile of the latency."
    told = [
        f"{words.duration(one.due.percentile(shares[-1]))} in {mode} mode" for mode, one in measured
    ]
    return f"{100 * shares[-1]:g} % of the records were written to a sink within {_listed(told)}."


def sweep_headline(sweep: Sweep, points: Sequence[Point], modes: Sequence[Mode]) -> list[str]:
    """A sweep: how the median barrier delay of each mode changed from the least value to the
    greatest."""
    ordered = sorted(
        (point for point in points if point.value is not None),
        key=lambda point: point.value.number if point.value else 0.0,
    )
    first, last = ordered[0], ordered[-1]
    assert first.value is not None
    assert last.value is not None
    told = [text for mode in modes if (text := _change(first, last, mode))]
    written = sweep.setting.text
    span = f"From {written(first.value.number)} to {written(last.value.number)}"
    span += f" {sweep.setting.label}" if sweep.setting.counts else f" ({sweep.setting.label})"
    barriers = f"{span}, no mode completed checkpoints at both ends."
    if told:
        barriers = f"{span}, the median barrier delay {_listed(told)}."
    return [*_loads_taken(ordered, modes), barriers]


def _loads_taken(points: Sequence[Point], modes: Sequence[Mode]) -> list[str]:
    """Up to which load each mode took what was given out; nothing where none was swept."""
    taken: dict[Mode, float] = {}
    for point in points:
        for mode in compare(point.experiment, point.modes).modes if point.experiment.load else ():
            if mode.latency is not None and mode.latency.kept_up:
                taken[mode.mode] = point.experiment.load or 0.0
    if not any(point.experiment.load for point in points):
        return []
    if len(taken) == len(modes) and len(set(taken.values())) == 1:
        return [f"Every mode took the load up to {taken[modes[0]]:g} of what the job sustains."]
    told = [
        f"{taken[mode]:g} in {mode} mode" if mode in taken else f"none in {mode} mode"
        for mode in modes
    ]
    return [f"The highest load that was taken: {_listed(told)}."]


def _change(first: Point, last: Point, mode: Mode) -> str:
    before, after = _median(first, mode), _median(last, mode)
    if before is None or after is None:
        return ""
    if max(before, after) < _ALIKE * min(before, after):
        return f"stayed at about {words.duration((before + after) / 2)} in {mode} mode"
    went = f"went from {words.duration(before)} to {words.duration(after)} in {mode} mode"
    return f"{went} (×{_digits(after / before)})" if after > before else went


def _median(point: Point, mode: Mode) -> float | None:
    found = [one.barrier_delay for run in point.experiment.runs_of(mode) for one in completed(run)]
    return median_low(found) if found else None


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def _digits(times: float) -> str:
    """Two digits are what medians of a few runs carry."""
    rounded = float(f"{times:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"
