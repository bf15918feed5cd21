"""Whole jobs with joins: crashes change nothing, and no late record is lost."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import streamcp as sc
from streamcp.testing.running import run_job
from streamcp.testing.simulating import simulate
from tests.end_to_end.clicks import START, Click, one_at_a_time
from tests.recovery.world import Target, staged

SECOND = 1_000

Keyed = sc.KeyedStream[int, Click]
Describe = Callable[[Keyed, Keyed], sc.Stream[Any]]


def clicks(count: int, every: int = 1) -> list[Click]:
    """One every so many seconds, of four users, up to four seconds out of order."""
    return [Click(n * n % 5, START + (n * every + n * 7 % 5) * SECOND) for n in range(count)]


def shown(left: Click | None, right: Click | None) -> tuple[int, int, int]:
    either = left or right
    assert either is not None
    return either.user, left.ts if left else 0, right.ts if right else 0


KINDS: dict[str, Describe] = {
    f"interval {how}": lambda left, right, how=how: left.join(  # type: ignore[misc]
        right, shown, before="3s", after="2s", how=how, name="join", parallelism=2
    )
    for how in ("inner", "left", "right", "outer")
}


KINDS |= {
    f"asof {how}": lambda left, right, how=how: left.join_asof(  # type: ignore[misc]
        right, shown, tolerance="5s", how=how, name="join", parallelism=2
    )
    for how in ("inner", "left")
}
KINDS |= {
    f"{type(windows).__name__} {how}": lambda left, right, windows=windows, how=how: (  # type: ignore[misc]
        left.window(windows, name="join").join(right, shown, how=how, parallelism=2)
    )
    for windows, how in (
        (sc.Tumbling("4s"), "inner"),
        (sc.Sliding("6s", "3s"), "left"),
        (sc.Session("3s"), "outer"),
        (sc.Tumbling("4s"), "right"),
    )
}


@pytest.mark.parametrize("kind", KINDS)
def test_joins_have_the_same_rows_whatever_crashes(kind: str) -> None:
    """No record is late, so an undisturbed run and one with crashes, faults, other parallelisms and
    any mode must emit the same."""

    def make() -> sc.Job:
        job = sc.Job("joins", checkpoints=sc.Checkpoints(to="unused", every="1s"))
        times = sc.Watermarks[Click](lambda click: click.ts, out_of_orderness="5s")
        left, right = (
            job.source(sc.items(own), name=name, watermarks=times).key_by(lambda c: c.user)
            for name, own in (("left", clicks(40)), ("right", clicks(25, 2)))
        )
        KINDS[kind](left, right).rebalance().sink(staged(Target()), name="out")
        return job

    simulate(make, seeds=range(10))


@pytest.mark.parametrize("how", ["once", "refined"])
def test_best_of_all_keys_are_the_same_whatever_crashes(how: str) -> None:
    """The counts come again with each record, or once; no record is late."""

    def make() -> sc.Job:
        job = sc.Job("top", types=[Click], checkpoints=sc.Checkpoints(to="unused", every="1s"))
        times = sc.Watermarks[Click](lambda click: click.ts, out_of_orderness="5s")
        keyed = job.source(sc.items(clicks(60)), name="clicks", watermarks=times).key_by(
            lambda click: click.user
        )
        emit = sc.early(every="2s") if how == "refined" else sc.Emit()
        counts = keyed.window(sc.Tumbling("7s"), name="w", emit=emit, parallelism=2).count()
        top = counts.top(2, by=lambda result: result.value, name="top", parallelism=2)
        top.rebalance().sink(staged(Target()), name="out")
        return job

    simulate(make, seeds=range(10))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_best_of_each_window_and_group_are_those_of_all_keys(parallelism: int) -> None:
    records = clicks(100)
    counts: Counter[tuple[int, int]] = Counter(
        (click.ts // 7_000 * 7_000, click.user) for click in records
    )
    job = sc.Job("top", parallelism=parallelism)
    times = sc.Watermarks[Click](lambda click: click.ts, out_of_orderness="5s")
    keyed = job.source(sc.items(records), name="clicks", watermarks=times, parallelism=1).key_by(
        lambda click: click.user
    )
    counted = keyed.window(sc.Tumbling("7s"), name="w").count()
    whole, odd = sc.collect(), sc.collect()
    counted.top(2, by=lambda r: (r.value, r.key), name="top").rebalance().sink(whole, name="out")
    counted.top(
        1, by=lambda r: (r.value, r.key), per=lambda r: r.key % 2, name="per"
    ).rebalance().sink(odd, name="odd")
    run_job(job)
    starts = sorted({start for start, _ in counts})
    ranked = {
        start: sorted(((n, user) for (at, user), n in counts.items() if at == start), reverse=True)
        for start in starts
    }
    assert {r.start: [(one.value, one.key) for one in r.value] for r in whole.records} == {
        start: best[:2] for start, best in ranked.items()
    }
    assert all(r.key is None and r.end == r.start + 7_000 for r in whole.records)
    assert {(r.start, r.key): r.value[0].key for r in odd.records} == {
        (start, odd): next(user for _, user in best if user % 2 == odd)
        for start, best in ranked.items()
        for odd in (0, 1)
        if any(user % 2 == odd for _, user in best)
    }


def test_best_are_emitted_again_for_a_late_record_that_changes_them() -> None:
    """At 25 s, a record of 2 s comes within the allowed lateness, for a user who had none."""
    job = sc.Job("late")
    times = sc.Watermarks[Click](lambda click: click.ts)
    late = [(1, 1), (1, 3), (2, 5), (1, 25), (3, 2), (2, 26), (2, 4), (2, 6), (1, 60), (2, 7)]

    @sc.source
    async def each(position: int = 0) -> AsyncIterator[tuple[Click, int]]:
        for place in range(position, len(late)):
            user, second = late[place]
            yield Click(user, START // 10_000 * 10_000 + second * SECOND), place + 1
            await asyncio.sleep(1)

    keyed = job.source(each(), name="clicks", watermarks=times).key_by(lambda c: c.user)
    counts = keyed.window(sc.Tumbling("10s"), allowed_lateness="30s", name="w").count()
    found = sc.collect()
    counts.top(1, by=lambda r: (r.value, -r.key), name="top").sink(found, name="out")
    run_job(job)
    first = [r for r in found.records if r.start == START // 10_000 * 10_000]
    assert [[(one.key, one.value) for one in r.value] for r in first] == [[(1, 2)], [(2, 3)]]


def late_job(describe: Describe) -> tuple[sc.Job, Any]:
    """The left input is at 25 s when its record of 2 s comes; the right one is beyond."""
    job = sc.Job("late")
    times = sc.Watermarks[Click](lambda click: click.ts)
    left, right = (
        job.source(one_at_a_time(own), name=name, watermarks=times).key_by(lambda c: c.user)
        for name, own in (
            ("left", [1_000, 25_000, 2_000, 27_000]),
            ("right", [1_000, 26_000, 26_500, 28_000]),
        )
    )
    return job, describe(left, right)


@pytest.mark.parametrize("kind", KINDS)
def test_late_records_come_out_beside_the_rows(kind: str) -> None:
    job, joined = late_job(KINDS[kind])
    rows, late = sc.collect(), sc.collect()
    joined.rebalance().sink(rows, name="out")
    joined.late.rebalance().sink(late, name="late")
    run_job(job)
    assert [click.ts - START for click in late.records] == [2_000]
    values = [getattr(row, "value", row) for row in rows.records]
    assert values
    assert all(2_000 + START not in value for value in values)


def test_late_records_that_nobody_reads_are_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job, joined = late_job(KINDS["interval inner"])
    joined.rebalance().sink(sc.discard(), name="out")
    with caplog.at_level(logging.WARNING):
        run_job(job)
    (message,) = [text for text in caplog.messages if "too late" in text]
    assert "'join'" in message
    assert ".late" in message
    assert "allowed_lateness" not in message


def test_stream_joined_with_itself_meets_every_record_twice_but_itself_once() -> None:
    job = sc.Job("self")
    times = sc.Watermarks[Click](lambda click: click.ts, out_of_orderness="5s")
    keyed = job.source(sc.items(clicks(30)), name="clicks", watermarks=times).key_by(
        lambda click: click.user
    )
    found = sc.collect()
    keyed.join(keyed, shown, before="2s", after="2s", name="join").sink(found, name="out")
    run_job(job)
    assert Counter(found.records) == Counter(
        shown(one, other)
        for one in clicks(30)
        for other in clicks(30)
        if one.user == other.user and abs(one.ts - other.ts) <= 2_000
    )


def test_failing_function_names_the_step_and_the_record() -> None:
    job, joined = late_job(
        lambda left, right: left.join(right, lambda one, other: 1 // 0, after="1s", name="bad")
    )
    joined.sink(sc.discard(), name="out")
    with pytest.raises(sc.JobFailed, match=r"step 'bad'.* failed at record Click.*ZeroDivision"):
        run_job(job)
