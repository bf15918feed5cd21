"""The conclusion says what the numbers carry, and names the reason where modes are alike."""

from __future__ import annotations

import dataclasses
from collections import Counter

from streamcp.checkpoint.statistics import CheckpointStatistics, Figure
from streamcp.cli.compare_headline import headline, latency, sweep_headline
from streamcp.compare.experiment import Experiment
from streamcp.compare.figures import Comparison, ModeFigures, Recovery, Verdict
from streamcp.compare.histogram import Histogram
from streamcp.compare.latency import Latency
from streamcp.compare.messages import Checkpoint, Ended, Latencies, Sample
from streamcp.compare.runs import Life, MeasuredRun
from streamcp.compare.sweep import Point, Sweep
from streamcp.config import Mode

EQUAL = Verdict("equal", 1000)


def mode_of(mode: Mode, delay: float | None, *, queued: float = 1000) -> ModeFigures:
    return ModeFigures(
        mode=mode,
        completed=3,
        failed=0,
        failures={},
        unaligned=0,
        escalated=0,
        barrier_delay=None if delay is None else Figure(delay, 2 * delay),
        durable_delay=None,
        alignment=None,
        in_flight_records=None,
        in_flight_bytes=None,
        snapshot_bytes=None,
        queued=Figure(queued, queued),
        records_per_second=1.0,
        recovery=Recovery(),
        verdict=EQUAL,
        errors=(),
    )


def said(*modes: ModeFigures) -> str:
    return " ".join(headline(Comparison(modes, EQUAL), 1000))


def test_barrier_delays_are_set_beside_each_other() -> None:
    assert said(mode_of("aligned", 0.506), mode_of("unaligned", 0.0015)) == (
        "The median checkpoint barrier reached the last subtask after 506 ms in aligned mode and "
        "1.5 ms in unaligned mode. Aligned took 340 times as long as unaligned."
    )


def test_mode_without_a_checkpoint_is_named() -> None:
    text = said(mode_of("aligned", None), mode_of("unaligned", 0.0015))

    assert "No checkpoint completed in aligned mode." in text
    assert "times" not in text


def test_modes_that_are_alike_with_empty_queues_have_the_reason_beside_them() -> None:
    text = said(mode_of("aligned", 0.0016, queued=12), mode_of("unaligned", 0.0015))

    assert "The queues were nearly empty (12 records, median)" in text
    assert "times as long" not in text


def test_modes_that_are_alike_with_full_queues_have_no_reason() -> None:
    assert "nearly empty" not in said(mode_of("aligned", 0.0016), mode_of("unaligned", 0.0015))


def latency_of(count: int, *, kept_up: bool = True, unstamped: str | None = None) -> Latency:
    counts = Histogram({50_000: count})
    nothing = Histogram()
    return Latency(counts, nothing, nothing, nothing, nothing, kept_up, unstamped)


def with_latency(mode: Mode, found: Latency) -> ModeFigures:
    return dataclasses.replace(mode_of(mode, 0.1), latency=found)


def test_highest_percentile_that_all_modes_tell_is_told() -> None:
    modes = [
        with_latency("aligned", latency_of(100_000)),
        with_latency("unaligned", latency_of(10_000)),
    ]

    assert latency(modes) == (
        "99 % of the records were written to a sink within 50.1 ms in aligned mode and 50.1 ms in "
        "unaligned mode."
    )


def test_latency_of_a_load_that_was_not_taken_is_not_told() -> None:
    modes = [
        with_latency("aligned", latency_of(10_000, kept_up=False)),
        with_latency("unaligned", latency_of(10_000)),
    ]

    assert latency(modes).startswith("The load was not taken in aligned mode")
    assert "50.1 ms" not in latency(modes)


def test_few_records_and_records_without_stamps_tell_no_percentile() -> None:
    assert "too few records" in latency([with_latency("aligned", latency_of(50))])
    unstamped = with_latency("aligned", latency_of(0, unstamped="source 'a' has event time"))
    assert latency([unstamped]) == (
        "Only the waiting before the sources was measured: source 'a' has event time."
    )


def test_sweep_is_told_from_the_least_value_to_the_greatest() -> None:
    sweep = Sweep.from_text("capacity=100,10")
    delays = {
        100.0: {"aligned": 0.5, "unaligned": 0.0011},
        10.0: {"aligned": 0.05, "unaligned": 0.001},
    }
    points = [
        Point(value, ["aligned", "unaligned"], experiment_of(delays[value.number]))
        for value in sweep.values
    ]

    assert sweep_headline(sweep, points, ["aligned", "unaligned", "adaptive"]) == [
        "From 10 to 100 records per channel, the median barrier delay went from 50.0 ms to 500 ms "
        "in aligned mode (×10) and stayed at about 1.1 ms in unaligned mode."
    ]


def experiment_of(delays: dict[str, float]) -> Experiment:
    runs = []
    for mode in ("aligned", "unaligned"):
        told = CheckpointStatistics(
            checkpoint_id=1, outcome="completed", barrier_delay=delays[mode]
        ).as_dict()
        life = Life(checkpoints=[Checkpoint(1.0, told)], ended=Ended(1.0, {}))
        runs.append(MeasuredRun("aligned" if mode == "aligned" else "unaligned", life, None))
    return Experiment(runs)


def under_load(load: float, *, kept_up: bool) -> Experiment:
    """A backlog of a tenth of all records, or none."""
    waiting = 0 if kept_up else 100
    life = Life(
        samples=[Sample(n / 4, 25 * n, 25 * n, waiting) for n in range(41)],
        latencies=Latencies(due={"1000": 10}),
        ended=Ended(10.0, {"rows": 1000}),
    )
    run = MeasuredRun("aligned", life, Counter({b"1-out: 1": 1}))
    return Experiment([run], load=load, reference=life)


def test_sweep_of_load_tells_the_highest_that_was_taken() -> None:
    sweep = Sweep.from_text("load=0.5,0.8,1.0")
    points = [
        Point(value, ["aligned"], under_load(value.number, kept_up=value.number < 1))
        for value in sweep.values
    ]

    said = sweep_headline(sweep, points, ["aligned", "adaptive"])
    alone = sweep_headline(sweep, points, ["aligned"])

    assert alone[0] == "Every mode took the load up to 0.8 of what the job sustains."
    assert (
        said[0] == "The highest load that was taken: 0.8 in aligned mode and none in adaptive mode."
    )


def test_sweep_without_checkpoints_at_an_end_says_so() -> None:
    sweep = Sweep.from_text("load=0.5,1.0")
    empty = Experiment([MeasuredRun("aligned", Life(ended=Ended(1.0, {})), None)])
    points = [Point(value, ["aligned"], empty) for value in sweep.values]

    assert sweep_headline(sweep, points, ["aligned"]) == [
        "From 0.5 to 1 (load, as part of what is sustained), no mode completed checkpoints at "
        "both ends."
    ]
