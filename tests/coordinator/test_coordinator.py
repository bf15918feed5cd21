"""From trigger to completion in a `VirtualTimeLoop`; tasks and storage do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import streamcp as sc
from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.mode_policy import TaskFacts
from streamcp.checkpoint.plan import Trigger
from streamcp.checkpoint.snapshot import Acknowledgement, Manifest, SubtaskStatistics, TaskShape
from streamcp.coordinator.coordinator import Coordinator
from streamcp.coordinator.gateway import JobFacts
from streamcp.coordinator.requests import Wish
from streamcp.errors import CheckpointFailed, Fenced, JobFailed, StorageError
from streamcp.identifiers import SubtaskId
from streamcp.observability import events
from streamcp.testing.clock import ManualClock
from streamcp.testing.loop import run_virtual
from tests.runtime.engine import until

SOURCE, SINK = SubtaskId("source", 0), SubtaskId("sink", 0)


class Tasks:
    """The tasks as the coordinator sees them; `on_start` may answer within the trigger."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.triggers: list[Trigger] = []
        self.done: set[SubtaskId] = set()
        self.ended = False
        self.outstanding = False
        self.restored_data_is_left = False
        self.queued = 0
        self.on_start: Callable[[Trigger], None] = lambda trigger: None

    def start(self, trigger: Trigger) -> None:
        self.triggers.append(trigger)
        self.calls.append(("start", trigger.checkpoint_id))
        self.on_start(trigger)

    def escalate(self, checkpoint_id: int) -> None:
        self.calls.append(("escalate", checkpoint_id))

    def cancel(self, checkpoint_id: int) -> None:
        self.calls.append(("cancel", checkpoint_id))

    def release(self) -> None:
        self.calls.append(("release", self.triggers[-1].checkpoint_id))

    def notify_complete(self, checkpoint_id: int) -> None:
        self.calls.append(("complete", checkpoint_id))

    def drain(self) -> None:
        self.calls.append(("drain", 0))

    def finished(self) -> frozenset[SubtaskId]:
        return frozenset(self.done)

    def all_ended(self) -> bool:
        return self.ended

    def replaying(self) -> bool:
        return self.restored_data_is_left

    def commits_outstanding(self) -> bool:
        return self.outstanding

    def facts(self) -> Sequence[TaskFacts]:
        return []

    def queued_records(self) -> int:
        return self.queued

    def look_at(self, when: float) -> None:
        self.wanted = when


class Storage:
    """Completes what it is given, unless `error` is set."""

    def __init__(self) -> None:
        self.completed: list[Manifest] = []
        self.discarded: list[int] = []
        self.history: list[Any] = []
        self.retained = 0
        self.pinned: list[int] = []
        self.error: Exception | None = None

    def complete(self, manifest: Manifest) -> None:
        if self.error is not None:
            raise self.error
        self.completed.append(manifest)

    def discard(self, checkpoint_id: int) -> None:
        self.discarded.append(checkpoint_id)

    def retain(self, count: int) -> list[int]:
        self.retained += 1
        return []

    def pin(self, checkpoint_id: int) -> None:
        self.pinned.append(checkpoint_id)

    def unpin(self, checkpoint_id: int) -> None:
        self.pinned.remove(checkpoint_id)

    def append_history(self, entry: Any) -> None:
        self.history.append(entry)


class Bench:
    def __init__(self, storage: bool = True, **settings: Any) -> None:
        self.clock = ManualClock()
        self.tasks, self.storage, self.log = Tasks(), Storage(), events.EventLog()
        facts = JobFacts(
            job="job",
            attempt=3,
            max_parallelism=128,
            tasks=(TaskShape("source", 1, ("source",)), TaskShape("sink", 1, ("sink",))),
            subtasks=(SOURCE, SINK),
            senders={SOURCE: frozenset(), SINK: frozenset({SOURCE})},
            sources=frozenset({SOURCE}),
        )
        self.coordinator = Coordinator(
            facts,
            sc.Checkpoints(to="unused", **settings) if storage else None,
            self.storage if storage else None,  # type: ignore[arg-type]
            tuple,
            self.clock,
            self.log,
            7,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.coordinator.begin(self.tasks)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.coordinator.run()),
                group.create_task(self.coordinator.run_disk()),
            ]
            yield
            for task in tasks:
                task.cancel()

    def acknowledge(self, checkpoint_id: int, *subtasks: SubtaskId, attempt: int = 3) -> None:
        for subtask in subtasks or (SOURCE, SINK):
            self.coordinator.acknowledge(
                Acknowledgement(checkpoint_id, attempt, subtask, (), SubtaskStatistics())
            )

    def answer(self, trigger: Trigger) -> None:
        """Acknowledge within the trigger, as fast tasks may."""
        self.acknowledge(trigger.checkpoint_id)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.log.events()]


async def settle() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(**getattr(request, "param", {}))


def run(bench: Bench, body: Callable[[], Any]) -> None:
    async def main() -> None:
        async with bench.running():
            await body()
            await asyncio.sleep(0.01)  # what is left for the disk

    run_virtual(main(), clock=bench.clock)


def test_requested_checkpoint_is_completed_and_answered(bench: Bench) -> None:
    async def body() -> None:
        request = bench.coordinator.request()
        await settle()
        (trigger,) = bench.tasks.triggers
        assert (trigger.checkpoint_id, trigger.triggered) == (7, frozenset({SOURCE}))
        bench.acknowledge(7, SINK)
        await settle()
        assert not request.done()
        bench.acknowledge(7, SOURCE)
        statistics = await request
        assert statistics.checkpoint_id == 7

    run(bench, body)
    assert bench.tasks.calls == [("start", 7), ("complete", 7)]
    (manifest,) = bench.storage.completed
    assert (manifest.attempt, manifest.final, len(manifest.acknowledgements)) == (3, False, 2)
    assert bench.kinds() == ["CheckpointTriggered", "CheckpointCompleted"]
    assert (len(bench.storage.history), bench.storage.retained) == (1, 1)


def test_checkpoint_triggered_while_restored_data_is_left_says_so(bench: Bench) -> None:
    """P41: whatever has become of the data when it completes."""
    bench.tasks.restored_data_is_left = True

    async def body() -> None:
        request = bench.coordinator.request()
        await settle()
        bench.tasks.restored_data_is_left = False
        bench.acknowledge(7, SINK)
        bench.acknowledge(7, SOURCE)
        await request
        bench.tasks.on_start = bench.answer
        await bench.coordinator.request()

    run(bench, body)
    assert [manifest.replaying for manifest in bench.storage.completed] == [True, False]


@pytest.mark.parametrize("bench", [{"every": "10s"}], indirect=True)
def test_periodic_checkpoints_keep_to_the_interval_and_ids_increase(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer

    async def body() -> None:
        await asyncio.sleep(35)

    run(bench, body)
    assert [trigger.at for trigger in bench.tasks.triggers] == pytest.approx([10, 20, 30], abs=0.01)
    assert [manifest.checkpoint_id for manifest in bench.storage.completed] == [7, 8, 9]


@pytest.mark.parametrize("bench", [{"every": "10s"}], indirect=True)
def test_no_second_checkpoint_starts_while_one_runs(bench: Bench) -> None:
    async def body() -> None:
        bench.coordinator.request()
        await asyncio.sleep(50)
        assert len(bench.tasks.triggers) == 1
        bench.acknowledge(7)
        await asyncio.sleep(0.01)
        assert len(bench.tasks.triggers) == 2

    run(bench, body)


def test_checkpoint_that_cannot_be_completed_stays_pinned_for_no_savepoint(bench: Bench) -> None:
    """It may be complete after all (P34): then retention must get it."""
    bench.tasks.on_start = bench.answer
    bench.storage.error = StorageError("the link was made, but nobody was told")

    async def body() -> None:
        with pytest.raises(CheckpointFailed, match="nobody was told"):
            await bench.coordinator.request(Wish(savepoint=True))
        assert bench.storage.pinned == []

    run(bench, body)


def test_attempt_that_ends_while_a_checkpoint_completes_leaves_it_unpinned(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer

    async def main() -> None:
        async with bench.running():
            waiting = bench.coordinator.request(Wish(savepoint=True))
            await until(lambda: bool(bench.storage.pinned))
            assert not waiting.done()

    run_virtual(main())
    assert bench.storage.pinned == []


OVERLAPPING = {"mode": "aligned", "max_concurrent": 2}


@pytest.mark.parametrize("bench", [{"every": "10s", **OVERLAPPING}], indirect=True)
def test_next_checkpoint_starts_while_one_runs_up_to_the_limit(bench: Bench) -> None:
    async def body() -> None:
        await asyncio.sleep(35)
        assert bench.tasks.calls == [("start", 7), ("start", 8)]
        bench.acknowledge(7)
        await settle()
        assert bench.tasks.calls[2:] == [("complete", 7), ("start", 9)]
        bench.acknowledge(8)
        await settle()
        assert [one.checkpoint_id for one in bench.storage.completed] == [7, 8]

    run(bench, body)


@pytest.mark.parametrize("bench", [OVERLAPPING], indirect=True)
@pytest.mark.parametrize("completing", [False, True])
def test_newer_checkpoint_that_completes_first_subsumes_the_older_one(
    bench: Bench, completing: bool
) -> None:
    """Also one that was acknowledged behind it: in the log the newest complete one is the last."""

    async def body() -> None:
        older = bench.coordinator.request()
        await settle()
        newer = bench.coordinator.request()
        await settle()
        bench.acknowledge(8)
        if completing:
            bench.acknowledge(7)
        assert (await newer).checkpoint_id == 8
        with pytest.raises(CheckpointFailed, match=r"newer checkpoint .*\(checkpoint 8\)"):
            await older

    run(bench, body)
    assert bench.tasks.calls == [("start", 7), ("start", 8), ("cancel", 7), ("complete", 8)]
    assert [one.checkpoint_id for one in bench.storage.completed] == [8]
    assert bench.storage.discarded == [7]
    assert bench.coordinator.last_completed == 8


@pytest.mark.parametrize("bench", [{"incremental": True, **OVERLAPPING}], indirect=True)
def test_checkpoints_that_one_under_way_may_build_on_are_kept_until_it_ends(bench: Bench) -> None:
    """P16, P32: 9 was triggered when 7 was the newest; 8 completes while it is under way."""

    async def body() -> None:
        bench.tasks.on_start = bench.answer
        await bench.coordinator.request()
        assert bench.storage.pinned == []
        bench.tasks.on_start = lambda trigger: None
        requests = [bench.coordinator.request() for _ in range(2)]
        await settle()
        assert bench.storage.pinned == [7]
        requests.append(bench.coordinator.request())
        await settle()
        assert [one.checkpoint_id for one in bench.tasks.triggers] == [7, 8, 9]
        assert bench.storage.pinned == [7, 7]
        bench.acknowledge(8)
        await settle()
        assert bench.storage.pinned == [7, 8]
        bench.acknowledge(9)
        await settle()
        assert bench.storage.pinned == []

    run(bench, body)


@pytest.mark.parametrize("bench", [{"incremental": True}], indirect=True)
def test_attempt_that_ends_keeps_no_checkpoint_from_retention(bench: Bench) -> None:
    async def body() -> None:
        bench.tasks.on_start = bench.answer
        await bench.coordinator.request()
        bench.tasks.on_start = lambda trigger: None
        request = bench.coordinator.request()
        await settle()
        assert bench.storage.pinned == [7]
        bench.coordinator.close(JobFailed("over"))
        with pytest.raises(JobFailed):
            await request

    run(bench, body)
    assert bench.storage.pinned == []


@pytest.mark.parametrize("bench", [{"timeout": "5s", **OVERLAPPING}], indirect=True)
def test_older_checkpoint_that_expires_leaves_the_newer_one_running(bench: Bench) -> None:
    async def body() -> None:
        older = bench.coordinator.request()
        await asyncio.sleep(3)
        newer = bench.coordinator.request()
        with pytest.raises(CheckpointFailed, match="within 5 s"):
            await older
        bench.acknowledge(8)
        assert (await newer).checkpoint_id == 8

    run(bench, body)
    assert bench.tasks.calls == [("start", 7), ("start", 8), ("cancel", 7), ("complete", 8)]


@pytest.mark.parametrize("bench", [{"tolerable_failures": 0, **OVERLAPPING}], indirect=True)
def test_subsumed_checkpoint_counts_as_no_failure_and_a_stop_subsumes_too(bench: Bench) -> None:
    async def body() -> None:
        bench.coordinator.request()
        await settle()
        stop = bench.coordinator.request(Wish(stop=True))
        await settle()
        bench.acknowledge(8)
        await stop
        await bench.coordinator.ended.wait()

    run(bench, body)
    assert bench.coordinator.outcome == "stopped"


@pytest.mark.parametrize("bench", [OVERLAPPING], indirect=True)
def test_going_to_unaligned_waits_for_all_that_run_and_back_for_the_unaligned_one(
    bench: Bench,
) -> None:
    async def request() -> None:
        bench.coordinator.request()
        await settle()

    async def body() -> None:
        await request()
        await request()
        bench.coordinator.set_mode("unaligned")
        await request()
        bench.acknowledge(7)
        await settle()
        assert [one.checkpoint_id for one in bench.tasks.triggers] == [7, 8]
        bench.acknowledge(8)
        await settle()
        assert bench.tasks.triggers[-1].unaligned
        bench.coordinator.set_mode("aligned")
        await request()
        assert len(bench.tasks.triggers) == 3
        bench.acknowledge(9)
        await settle()
        await request()
        assert [one.unaligned for one in bench.tasks.triggers[3:]] == [False, False]

    run(bench, body)


@pytest.mark.parametrize("bench", [OVERLAPPING], indirect=True)
def test_going_to_aligned_waits_for_one_that_may_still_be_escalated(bench: Bench) -> None:
    async def body() -> None:
        bench.coordinator.set_mode("adaptive")
        bench.coordinator.request()
        await settle()
        bench.coordinator.set_mode("aligned")
        bench.coordinator.request()
        await settle()
        assert bench.tasks.calls == [("start", 7)]
        await asyncio.sleep(100)
        assert bench.tasks.calls == [("start", 7), ("escalate", 7)]
        bench.acknowledge(7)
        await settle()
        assert bench.tasks.calls[2:] == [("complete", 7), ("start", 8)]

    run(bench, body)


@pytest.mark.parametrize("bench", [{"timeout": "5s", "mode": "aligned"}], indirect=True)
def test_expired_checkpoint_is_cancelled_discarded_and_told(bench: Bench) -> None:
    async def body() -> None:
        request = bench.coordinator.request()
        await settle()
        bench.acknowledge(7, SINK)
        await asyncio.sleep(6)
        with pytest.raises(CheckpointFailed, match=r"within 5 s from source\[0\]"):
            await request
        bench.acknowledge(7, SOURCE)  # too late
        await settle()

    run(bench, body)
    assert bench.tasks.calls == [("start", 7), ("cancel", 7)]
    assert (bench.storage.discarded, bench.storage.completed) == ([7], [])


def test_decline_ends_the_checkpoint_with_its_reason(bench: Bench) -> None:
    async def body() -> None:
        request = bench.coordinator.request()
        await settle()
        bench.coordinator.decline(SINK, 7, FailureReason.FREEZE_FAILED, "class X is not declared")
        with pytest.raises(CheckpointFailed, match="class X is not declared"):
            await request

    run(bench, body)
    assert bench.tasks.calls == [("start", 7), ("cancel", 7)]


def test_messages_within_a_trigger_are_acted_on_after_it(bench: Bench) -> None:
    def decline(trigger: Trigger) -> None:
        bench.coordinator.decline(SINK, 7, FailureReason.DECLINED, "at once")
        assert bench.tasks.calls == [("start", 7)]

    bench.tasks.on_start = decline

    async def body() -> None:
        with pytest.raises(CheckpointFailed, match="at once"):
            await bench.coordinator.request()

    run(bench, body)


@pytest.mark.parametrize(
    "bench", [{"mode": "adaptive", "alignment_timeout": "100ms", "predict": False}], indirect=True
)
def test_adaptive_checkpoint_is_escalated_once_after_the_timeout(bench: Bench) -> None:
    async def body() -> None:
        bench.coordinator.request()
        await asyncio.sleep(0.05)
        assert [trigger.unaligned for trigger in bench.tasks.triggers] == [False]
        assert ("escalate", 7) not in bench.tasks.calls
        await asyncio.sleep(1)
        bench.acknowledge(7)
        await settle()

    run(bench, body)
    assert bench.tasks.calls == [("start", 7), ("escalate", 7), ("complete", 7)]
    assert bench.storage.completed[0].mode == "unaligned"


@pytest.mark.parametrize(
    "bench",
    [{"alignment_timeout": "100ms", "predict": False, "max_in_flight_bytes": 1000}],
    indirect=True,
)
def test_escalation_waits_until_the_queued_bytes_fit(bench: Bench) -> None:
    bench.tasks.queued = 100

    async def body() -> None:
        bench.coordinator.request()
        await asyncio.sleep(1)
        assert bench.tasks.calls == [("start", 7)]
        bench.tasks.queued = 1
        await asyncio.sleep(0.1)
        assert bench.tasks.calls == [("start", 7), ("escalate", 7)]

    run(bench, body)


def test_storage_that_fails_ends_the_checkpoint_and_the_job_goes_on(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer
    bench.storage.error = StorageError("the disk is full")

    async def body() -> None:
        with pytest.raises(CheckpointFailed, match="the disk is full"):
            await bench.coordinator.request()
        bench.storage.error = None
        await bench.coordinator.request()

    run(bench, body)
    assert bench.tasks.calls == [("start", 7), ("cancel", 7), ("start", 8), ("complete", 8)]


def test_fenced_attempt_ends_and_notifies_nobody(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer
    bench.storage.error = Fenced("another copy")

    async def body() -> None:
        bench.coordinator.request()
        await asyncio.sleep(10)

    with pytest.RaisesGroup(Fenced):
        run(bench, body)
    assert bench.tasks.calls == [("start", 7)]
    assert bench.storage.discarded == []


@pytest.mark.parametrize("bench", [{"tolerable_failures": 1}], indirect=True)
def test_more_failures_than_tolerable_fail_the_job(bench: Bench) -> None:
    def decline(trigger: Trigger) -> None:
        bench.coordinator.decline(SINK, trigger.checkpoint_id, FailureReason.DECLINED, "no")

    bench.tasks.on_start = decline

    async def body() -> None:
        for _ in range(2):
            with pytest.raises(CheckpointFailed):
                await bench.coordinator.request()
        await asyncio.sleep(10)

    with pytest.RaisesGroup(JobFailed):
        run(bench, body)


def test_messages_of_another_attempt_are_ignored(bench: Bench) -> None:
    async def body() -> None:
        bench.coordinator.request()
        await settle()
        bench.acknowledge(7, attempt=2)
        await settle()

    run(bench, body)
    assert bench.storage.completed == []


# ---- the end


def test_end_of_all_tasks_triggers_the_final_checkpoint(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer

    async def body() -> None:
        bench.coordinator.subtask_ended(SOURCE)
        await settle()
        assert bench.tasks.triggers == []
        bench.tasks.ended = True
        bench.coordinator.subtask_ended(SINK)
        await bench.coordinator.ended.wait()

    run(bench, body)
    assert bench.coordinator.outcome == "finished"
    assert bench.storage.completed[0].final


def test_job_ends_only_when_everything_is_committed(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer
    bench.tasks.outstanding = bench.tasks.ended = True

    async def body() -> None:
        bench.coordinator.subtask_ended(SINK)
        await asyncio.sleep(1)
        assert bench.coordinator.outcome == "finished"
        assert not bench.coordinator.ended.is_set()
        bench.tasks.outstanding = False
        bench.coordinator.committed(SINK)
        await bench.coordinator.ended.wait()

    run(bench, body)


def test_final_checkpoint_that_failed_is_tried_again(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer
    bench.tasks.ended = True
    bench.storage.error = StorageError("full")

    async def body() -> None:
        bench.coordinator.subtask_ended(SINK)
        await asyncio.sleep(2.5)
        bench.storage.error = None
        await bench.coordinator.ended.wait()

    run(bench, body)
    assert len(bench.tasks.triggers) > 2


def test_stop_is_a_stopping_checkpoint_and_ends_the_job(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer

    async def body() -> None:
        await bench.coordinator.request(Wish(stop=True))
        await bench.coordinator.ended.wait()

    run(bench, body)
    assert bench.coordinator.outcome == "stopped"
    assert [trigger.stopping for trigger in bench.tasks.triggers] == [True]


@pytest.mark.parametrize("bench", [OVERLAPPING], indirect=True)
def test_savepoint_in_another_mode_waits_for_those_that_overlap(bench: Bench) -> None:
    async def body() -> None:
        bench.coordinator.request()
        await settle()
        bench.coordinator.request(Wish(mode="unaligned"))
        await settle()
        assert [one.checkpoint_id for one in bench.tasks.triggers] == [7]
        bench.acknowledge(7)
        await settle()
        assert [one.unaligned for one in bench.tasks.triggers] == [False, True]

    run(bench, body)


def test_drain_tells_the_tasks_once_and_fails_only_with_the_attempt(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer

    async def body() -> None:
        drained = bench.coordinator.drain()
        assert bench.tasks.calls == [("drain", 0)]
        bench.tasks.ended = True
        bench.coordinator.subtask_ended(SOURCE)
        await bench.coordinator.ended.wait()
        assert bench.coordinator.outcome == "finished"
        assert not drained.done()
        bench.coordinator.close(CheckpointFailed("it is over"))
        with pytest.raises(CheckpointFailed, match="it is over"):
            await drained

    run(bench, body)


def test_stop_that_fails_leaves_the_job_running(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer
    bench.storage.error = StorageError("full")

    async def body() -> None:
        with pytest.raises(CheckpointFailed):
            await bench.coordinator.request(Wish(stop=True))
        assert bench.tasks.calls[-1] == ("cancel", 7)
        assert bench.coordinator.outcome is None
        bench.storage.error = None
        await bench.coordinator.request()

    run(bench, body)


STOP_SAVED = Wish(savepoint=True, stop=True)


@pytest.mark.parametrize("succeeded", [True, False])
def test_stop_with_a_savepoint_is_decided_when_that_is_written(
    bench: Bench, succeeded: bool
) -> None:
    """Until then nothing else is triggered; if it fails the subtasks go on (P33)."""
    bench.tasks.on_start = bench.answer

    async def body() -> None:
        await bench.coordinator.request(STOP_SAVED)
        waiting = bench.coordinator.request()
        await asyncio.sleep(100)
        assert bench.coordinator.outcome is None
        assert [len(bench.tasks.triggers), bench.storage.pinned] == [1, [7]]
        assert bench.tasks.calls[-1] == ("complete", 7), "sinks commit meanwhile"
        bench.coordinator.savepoint_written(succeeded=succeeded)
        if succeeded:
            await bench.coordinator.ended.wait()
            assert bench.coordinator.outcome == "stopped"
        else:
            assert bench.tasks.calls[-1] == ("release", 7)
            assert (await waiting).checkpoint_id == 8
            assert bench.coordinator.outcome is None

    run(bench, body)


@pytest.mark.parametrize("outcomes", [(False, True), (True, False), (False, False)])
def test_one_of_several_savepoints_is_enough_for_a_stop(
    bench: Bench, outcomes: tuple[bool, bool]
) -> None:
    bench.tasks.on_start = bench.answer

    async def body() -> None:
        both = [bench.coordinator.request(STOP_SAVED) for _ in outcomes]
        await asyncio.gather(*both)
        assert bench.storage.pinned == [7, 7]
        for succeeded in outcomes:
            bench.coordinator.savepoint_written(succeeded=succeeded)
        assert (bench.coordinator.outcome == "stopped") == any(outcomes)
        assert (bench.tasks.calls[-1] == ("release", 7)) == (not any(outcomes))

    run(bench, body)


def test_attempt_that_fails_meanwhile_is_not_stopped_by_a_late_savepoint(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer

    async def body() -> None:
        await bench.coordinator.request(STOP_SAVED)
        bench.coordinator.close(CheckpointFailed("the job failed"))
        bench.coordinator.savepoint_written(succeeded=True)
        assert bench.coordinator.outcome is None

    run(bench, body)


@pytest.mark.parametrize("bench", [{"storage": False}], indirect=True)
def test_without_storage_a_bounded_job_ends_all_the_same(bench: Bench) -> None:
    bench.tasks.on_start = bench.answer
    bench.tasks.ended = True

    async def body() -> None:
        bench.coordinator.subtask_ended(SINK)
        await bench.coordinator.ended.wait()

    run(bench, body)
    assert bench.tasks.calls == [("start", 7), ("complete", 7)]


def test_requests_that_nobody_will_answer_fail_when_it_is_closed(bench: Bench) -> None:
    async def body() -> None:
        waiting = bench.coordinator.request()
        await settle()
        bench.coordinator.close(CheckpointFailed("the job failed"))
        with pytest.raises(CheckpointFailed, match="the job failed"):
            await waiting
        with pytest.raises(CheckpointFailed):
            await bench.coordinator.request()

    run(bench, body)


# ---- alarms


@pytest.mark.parametrize("bench", [{"max_age": "10s"}], indirect=True)
def test_overdue_checkpoint_is_told_once_and_again_after_the_next(bench: Bench) -> None:
    async def body() -> None:
        await asyncio.sleep(35)
        assert bench.kinds() == ["CheckpointOverdue"]
        request = bench.coordinator.request()
        await settle()
        bench.acknowledge(7)
        await request
        await asyncio.sleep(15)
        assert bench.kinds().count("CheckpointOverdue") == 2

    run(bench, body)


@pytest.mark.parametrize("bench", [{"max_age": "10s", "fail_on_max_age": True}], indirect=True)
def test_overdue_checkpoint_fails_the_job_if_asked(bench: Bench) -> None:
    async def body() -> None:
        await asyncio.sleep(35)

    with pytest.RaisesGroup(JobFailed):
        run(bench, body)
