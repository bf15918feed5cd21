"""Whole jobs with windows: they close at the end, survive crashes, and lose no late record."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

import streamcp as sc
from streamcp.testing.running import run_job
from streamcp.testing.simulating import simulate
from tests.end_to_end.clicks import START, Click, one_at_a_time
from tests.recovery.world import Target, staged

SECOND = 1_000


def clicks(count: int) -> list[Click]:
    """One every second, of five users, up to four seconds out of order."""
    return [Click(n * n % 5, START + (n + n * 7 % 5) * SECOND) for n in range(count)]


def collected(
    records: list[Click],
    describe: Callable[[sc.KeyedStream[int, Click]], sc.Stream[Any]],
    *,
    out_of_orderness: str = "5s",
    parallelism: int = 1,
) -> list[Any]:
    job = sc.Job("windows", parallelism=parallelism)
    watermarks = sc.Watermarks[Click](lambda click: click.ts, out_of_orderness=out_of_orderness)
    source = job.source(sc.items(records), name="clicks", watermarks=watermarks)
    found = sc.collect()
    describe(source.key_by(lambda click: click.user)).sink(found, name="out")
    run_job(job)
    return found.records


def spans(result: sc.WindowResult[int, int]) -> tuple[int, int, int, int]:
    return result.key, result.start - START, result.end - START, result.value


def test_every_window_is_closed_when_the_input_ends() -> None:
    counts: Counter[tuple[int, int]] = Counter()
    for click in clicks(100):
        counts[click.user, click.ts // 7_000 * 7_000] += 1
    found = collected(clicks(100), lambda keyed: keyed.window(sc.Tumbling("7s")).count())
    assert {(r.key, r.start): r.value for r in found} == counts
    assert len(found) == len(counts)
    assert all(r.end - r.start == 7_000 for r in found)


def test_windows_close_as_far_as_there_is_room_for_their_results() -> None:
    """Timers fire in runs; a full queue behind the windows holds them back, and loses nothing."""
    job = sc.Job("windows", channel_capacity=1)
    watermarks = sc.Watermarks[Click](lambda click: click.ts)
    clicks_of_many = [Click(user, START) for user in range(150)]
    source = job.source(sc.items(clicks_of_many), name="clicks", watermarks=watermarks)
    counted = source.key_by(lambda click: click.user).window(sc.Tumbling("1s"), name="w").count()
    written: list[int] = []
    most = 0

    async def slow(results: Sequence[sc.WindowResult[int, int]]) -> None:
        nonlocal most
        await asyncio.sleep(1)
        written.extend(result.key for result in results)
        most = max(most, len(results))

    counted.rebalance().sink(slow, name="out")
    run_job(job)
    assert sorted(written) == list(range(150))
    assert most <= 2


def test_windows_that_close_one_after_another_all_close_when_the_input_ends() -> None:
    """A sliding window sets the timer of the next one, a session that has grown a new one."""
    records = [Click(1, START + n * SECOND) for n in (0, 1, 2)]
    sliding = collected(records, lambda keyed: keyed.window(sc.Sliding("5s", "1s")).count())
    assert [value for *_, value in map(spans, sliding)] == [1, 2, 3, 3, 3, 2, 1]
    session = collected(records, lambda keyed: keyed.window(sc.Session("1500ms")).count())
    assert list(map(spans, session)) == [(1, 0, 3_500, 3)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_sessions_of_every_user_hold_what_follows_within_the_gap(parallelism: int) -> None:
    records = [c for c in clicks(200) if (c.ts - START) // SECOND % 40 < 25]
    by_user: defaultdict[int, list[list[int]]] = defaultdict(list)
    for click in sorted(records, key=lambda click: click.ts):
        sessions = by_user[click.user]
        if sessions and click.ts - sessions[-1][-1] < 6_000:
            sessions[-1].append(click.ts)
        else:
            sessions.append([click.ts])
    expected = {
        (user, times[0], times[-1] + 6_000, len(times))
        for user, sessions in by_user.items()
        for times in sessions
    }
    found = collected(
        records,
        lambda keyed: keyed.window(sc.Session("6s"), parallelism=parallelism).count().rebalance(),
    )
    assert {(r.key, r.start, r.end, r.value) for r in found} == expected
    assert len(found) == len(expected) > 10


@pytest.mark.parametrize("parallelism", [1, 3])
def test_results_of_one_window_meet_in_one_of_the_same_size(parallelism: int) -> None:
    """The two users with the most clicks of each window, of all subtasks together."""
    counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for click in clicks(100):
        counts[click.ts // 7_000 * 7_000][click.user] += 1
    most: sc.TopN[sc.WindowResult[int, int]] = sc.TopN(2, by=lambda result: result.value)
    size = sc.Tumbling("7s")
    found = collected(
        clicks(100),
        lambda keyed: (
            keyed.window(size, parallelism=parallelism)
            .count()
            .key_by(lambda result: result.start)
            .window(size, parallelism=parallelism)
            .aggregate(most)
            .rebalance()
        ),
    )
    assert {r.key: [one.value for one in r.value] for r in found} == {
        start: [count for _, count in users.most_common(2)] for start, users in counts.items()
    }
    assert len(found) == len(counts)


def test_process_gets_all_records_of_a_window_with_its_span() -> None:
    def describe(window: sc.WindowResult[int, list[Click]]) -> list[tuple[int, int, set[int]]]:
        return [(window.key, window.start, {click.user for click in window.value})]

    found = collected(clicks(30), lambda keyed: keyed.window(sc.Tumbling("10s")).process(describe))
    assert found
    assert all(users == {key} for key, _, users in found)


def late_job(times: list[int]) -> tuple[sc.Job, sc.Windowed[int, Click, int]]:
    job = sc.Job("late")
    watermarks = sc.Watermarks[Click](lambda click: click.ts)
    source = job.source(one_at_a_time(times), name="clicks", watermarks=watermarks)
    keyed = source.key_by(lambda click: click.user)
    return job, keyed.window(sc.Tumbling("10s"), name="windows").count()


def test_late_records_come_out_beside_the_results() -> None:
    job, counted = late_job([1_000, 25_000, 2_000, 27_000, 3_000])
    results, late = sc.collect(), sc.collect()
    counted.sink(results, name="out")
    counted.late.sink(late, name="late")
    run_job(job)
    assert [click.ts - START for click in late.records] == [2_000, 3_000]
    assert [spans(result)[1:] for result in results.records] == [
        (0, 10_000, 1),
        (20_000, 30_000, 2),
    ]


def test_late_records_that_nobody_reads_are_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job, counted = late_job([1_000, 25_000, 2_000, 27_000, 3_000])
    counted.sink(sc.discard(), name="out")
    with caplog.at_level(logging.WARNING):
        run_job(job)
    (message,) = [text for text in caplog.messages if "too late" in text]
    assert "'windows'" in message
    assert ".late" in message


def test_windows_close_although_every_record_is_filtered_out_before_them() -> None:
    """Case 19, hz#20740: the watermark goes on where no record does."""
    job = sc.Job("filtered")
    watermarks = sc.Watermarks[Click](lambda click: click.ts)
    source = job.source(
        one_at_a_time([1_000, 2_000, 15_000, 30_000, 40_000]), name="clicks", watermarks=watermarks
    )
    closed_before: list[int] = []
    seen: list[Click] = []

    def among_the_first(click: Click) -> bool:
        seen.append(click)
        return len(seen) < 3

    passed = source.filter(among_the_first)
    counted = passed.key_by(lambda click: click.user).window(sc.Tumbling("10s")).count()
    counted.for_each(lambda result: closed_before.append(len(seen)))
    run_job(job)
    assert closed_before == [3]


@pytest.mark.parametrize("parallelism", [1, 4])
def test_silent_split_and_subtasks_without_one_do_not_keep_windows_open(parallelism: int) -> None:
    """Case 20, arroyo#222: two splits, one of them silent for an hour; also four subtasks."""

    @sc.source(splits=lambda: ["busy", "silent"])
    async def partitions(split: str, position: int = 0) -> AsyncIterator[tuple[Click, int]]:
        if split == "silent":
            await asyncio.sleep(3600)
            return
        for n in range(position, 30):
            yield Click(1, START + n * SECOND), n + 1
            await asyncio.sleep(1)

    job = sc.Job("idle")
    watermarks = sc.Watermarks[Click](lambda click: click.ts, idle_after="2s")
    source = job.source(partitions(), name="clicks", parallelism=parallelism, watermarks=watermarks)
    counted = source.key_by(lambda click: click.user).window(sc.Tumbling("10s")).count()
    closed: list[tuple[int, float]] = []
    counted.for_each(
        lambda result: closed.append((result.start - START, asyncio.get_running_loop().time()))
    )
    run_job(job)
    assert [start for start, _ in closed] == [0, 10_000, 20_000]
    assert closed[1][1] - closed[0][1] < 60


KINDS: dict[str, Callable[[sc.KeyedStream[int, Click]], sc.Stream[Any]]] = {
    "tumbling": lambda keyed: keyed.window(sc.Tumbling("6s"), name="w", parallelism=2).count(),
    "sliding": lambda keyed: keyed.window(sc.Sliding("8s", "3s"), name="w", parallelism=2).count(),
    "session": lambda keyed: keyed.window(sc.Session("4s"), name="w", parallelism=2).aggregate(
        sc.Count(), sc.Last(lambda click: click.ts), into=lambda count, last: (count, last)
    ),
    "records": lambda keyed: keyed.window(sc.Sliding("8s", "4s"), name="w", parallelism=2).process(
        lambda window: [sorted(click.ts for click in window.value)]
    ),
    "global": lambda keyed: keyed.window(sc.Global(), name="w").aggregate(
        sc.Mean(lambda click: click.ts)
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_windows_have_the_same_results_whatever_crashes(kind: str) -> None:
    """No record is late, so an undisturbed run and one with crashes, faults, other parallelisms and
    any mode must emit the same."""

    def make() -> sc.Job:
        checkpoints = sc.Checkpoints(to="unused", every="1s")
        job = sc.Job("windows", checkpoints=checkpoints, types=[Click])
        watermarks = sc.Watermarks[Click](lambda click: click.ts, out_of_orderness="5s")
        source = job.source(sc.items(clicks(60)), name="clicks", watermarks=watermarks)
        results = KINDS[kind](source.key_by(lambda click: click.user))
        results.rebalance().sink(staged(Target()), name="out")
        return job

    simulate(make, seeds=range(12))


@pytest.mark.parametrize(
    "windows", [sc.Tumbling("1h"), sc.Sliding("1h", every="1m"), sc.Session("1h")]
)
@pytest.mark.parametrize("number", [0, 90])
@pytest.mark.parametrize("strict", [False, True])
def test_record_that_an_aggregate_fails_at_is_named_wherever_in_its_window_it_is(
    windows: sc.Windows, number: int, strict: bool
) -> None:
    records = clicks(100)

    def amount(click: Click) -> int:
        if click == records[number]:
            raise ValueError("no amount")
        return 1

    job = sc.Job("windows", strict=strict)
    watermarks = sc.Watermarks[Click](lambda click: click.ts, out_of_orderness="5s")
    source = job.source(sc.items(records), name="clicks", watermarks=watermarks)
    sums = source.key_by(lambda click: click.user).window(windows, name="sums")
    sums.aggregate(sc.Sum(amount)).sink(sc.discard(), name="out")
    with pytest.raises(sc.JobFailed, match=r"step 'sums'.*no amount") as caught:
        run_job(job)
    assert repr(records[number]) in str(caught.value)
