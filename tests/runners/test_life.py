"""A job from start to end: attempts, restarts, what counts as finished (P5, P30, P33, P34)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import CheckpointFailed, Fenced, JobFailed, StorageError
from streamcp.observability import events
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.runners.life import JobLife
from streamcp.storage.local import LocalStorage
from tests.runtime.engine import Gate, until

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])


class Target:
    """A transactional target outside the job; `fail` fails the named calls."""

    def __init__(self) -> None:
        self.open: dict[str, list[Any]] = {}
        self.committed: dict[str, list[Any]] = {}
        self.fail: set[str] = set()

    def step(self, call: str) -> None:
        if call in self.fail:
            raise ConnectionError(f"{call}: the target is away")

    @property
    def visible(self) -> list[Any]:
        return [record for records in self.committed.values() for record in records]

    def sink(self, *, direct: bool) -> Any:
        return _Direct(self) if direct else _Staged(self)


class _Staged:
    def __init__(self, target: Target) -> None:
        self.target = target

    async def write(self, records: Sequence[Any], transaction: sc.Transaction) -> None:
        self.target.step("write")
        self.target.open[transaction.id] = list(records)

    async def prepare(self, transaction: sc.Transaction) -> None:
        self.target.step("prepare")

    async def commit(self, transaction: sc.Transaction, token: None) -> None:
        self.target.step("commit")
        if transaction.id not in self.target.committed:
            self.target.committed[transaction.id] = self.target.open.pop(transaction.id, [])


class _Direct(_Staged):
    async def write(self, records: Sequence[Any], transaction: sc.Transaction) -> None:
        self.target.step("write")
        self.target.open.setdefault(transaction.id, []).extend(records)

    async def abort(self, transaction: sc.Transaction) -> None:
        self.target.open.pop(transaction.id, None)


def life_of(job: sc.Job, **settings: Any) -> JobLife:
    merged = job.settings(**settings)
    job.validate(merged)
    loop = asyncio.get_running_loop()
    return JobLife(job.graph, merged, job.types, clock=getattr(loop, "clock", None))


async def run(
    job: sc.Job, use: Callable[[JobHandle], Awaitable[Any]] | None = None, **settings: Any
) -> JobResult:
    """Run a job to its end; `use` gets its handle meanwhile."""
    life = life_of(job, **settings)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(life.run())
        if use is not None:
            await use(JobHandle(life, task))
    return task.result()


def counting(numbers: Sequence[int], gate: Gate | None = None) -> Any:
    @sc.source
    async def source(position: int = 0) -> Any:
        for number in range(position, len(numbers)):
            if gate is not None:
                await gate.pass_(number)
            yield numbers[number], number + 1

    return source()


def to_target(target: Target, *, direct: bool, numbers: Sequence[int] = (1, 2, 3)) -> sc.Job:
    job = sc.Job("job")
    job.source(counting(numbers), name="source").sink(target.sink(direct=direct), name="out")
    return job


def checkpoints(path: Path, **options: Any) -> sc.Checkpoints:
    return sc.Checkpoints(to=path, **options)


# ---- the end


@pytest.mark.parametrize("direct", [True, False])
async def test_bounded_job_commits_its_tail_and_is_finished_in_later_runs(
    tmp_path: Path, direct: bool
) -> None:
    target = Target()
    first = await run(
        to_target(target, direct=direct),
        checkpoints=checkpoints(tmp_path),
        restart=sc.Restart.none(),
    )
    assert (first.outcome, target.visible) == ("finished", [1, 2, 3])
    second = await run(
        to_target(target, direct=direct),
        checkpoints=checkpoints(tmp_path),
        restart=sc.Restart.none(),
    )
    assert second.outcome == "already_finished"
    assert target.visible == [1, 2, 3]


@pytest.mark.parametrize("direct", [True, False])
async def test_empty_job_with_an_exactly_once_sink_ends(tmp_path: Path, direct: bool) -> None:
    job = to_target(Target(), direct=direct, numbers=())
    assert (await run(job, checkpoints=checkpoints(tmp_path))).outcome == "finished"


@pytest.mark.parametrize("direct", [True, False])
async def test_tail_that_was_not_committed_after_the_final_checkpoint_is_committed_by_the_next_run(
    tmp_path: Path, direct: bool
) -> None:
    target = Target()
    target.fail = {"commit"}
    with pytest.raises(JobFailed):
        await run_unwrapped(
            to_target(target, direct=direct),
            checkpoints=checkpoints(tmp_path),
            restart=sc.Restart.none(),
        )
    assert target.visible == []
    target.fail = set()
    await run(
        to_target(target, direct=direct),
        checkpoints=checkpoints(tmp_path),
        restart=sc.Restart.none(),
    )
    assert target.visible == [1, 2, 3]
    again = await run(
        to_target(target, direct=direct),
        checkpoints=checkpoints(tmp_path),
        restart=sc.Restart.none(),
    )
    assert again.outcome == "already_finished"


async def run_unwrapped(job: sc.Job, **settings: Any) -> JobResult:
    return await life_of(job, **settings).run()


@pytest.mark.parametrize("direct", [True, False])
async def test_exactly_once_sink_whose_errors_are_read_ends_without_periodic_checkpoints(
    tmp_path: Path, direct: bool
) -> None:
    target = Target()
    target.fail = {"write"}
    errors: list[Any] = []

    async def write(records: Sequence[Any]) -> None:
        errors.extend(records)

    job = sc.Job("job")
    step = job.source(counting([1, 2]), name="source").sink(
        target.sink(direct=direct), name="out", on_error="divert"
    )
    step.errors.sink(write, name="errors")
    async with asyncio.timeout(30):
        result = await run(job, checkpoints=checkpoints(tmp_path))
    assert result.outcome == "finished"
    assert [failure.record for failure in errors] == [1, 2]


async def test_job_without_checkpoints_ends_although_its_state_cannot_be_written() -> None:
    class Odd:
        """No data class: no snapshot could hold it."""

        def __init__(self, value: int) -> None:
            self.value = value

    out: list[Any] = []

    async def write(records: Sequence[Any]) -> None:
        out.extend(record.value for record in records)

    job = sc.Job("job")
    (
        job.source(counting([1, 2, 3]))
        .map(Odd)
        .key_by(lambda odd: 0)
        .reduce(lambda a, b: Odd(a.value + b.value))
        .sink(write)
    )
    async with asyncio.timeout(30):
        result = await run(job)
    assert (result.outcome, out) == ("finished", [1, 3, 6])


# ---- stop


async def test_stopped_job_goes_on_where_it_was(tmp_path: Path) -> None:
    for unaligned in ("aligned", "unaligned", "adaptive"):
        folder = tmp_path / unaligned
        target, gate = Target(), Gate()
        options = checkpoints(folder, mode=unaligned)

        def job(gate: Gate = gate, target: Target = target) -> sc.Job:
            made = sc.Job("job")
            made.source(counting(range(10), gate), name="source").sink(
                target.sink(direct=True), name="out"
            )
            return made

        async def stop_after_some(handle: JobHandle, gate: Gate = gate) -> None:
            for number in range(4):
                await until(lambda n=number: n in gate.waiting)
                gate.open(number)
            await until(lambda: 4 in gate.waiting)
            await handle.stop()

        async def let_pass(handle: JobHandle, gate: Gate = gate) -> None:
            for number in range(4, 10):
                await until(lambda n=number: n in gate.waiting)
                gate.open(number)

        first = await run(job(), stop_after_some, checkpoints=options)
        assert (first.outcome, target.visible) == ("stopped", [0, 1, 2, 3])
        second = await run(job(), let_pass, checkpoints=options)
        assert (second.outcome, target.visible) == ("finished", list(range(10)))


async def test_stop_of_a_job_that_is_just_ending_gives_its_result(tmp_path: Path) -> None:
    for turns in range(0, 60, 3):
        target = Target()

        async def stop(handle: JobHandle, turns: int = turns) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(30):
                await handle.stop()

        result = await run(
            to_target(target, direct=True), stop, checkpoints=checkpoints(tmp_path / str(turns))
        )
        assert result.outcome in ("finished", "stopped")


@virtual_time
async def test_stop_whose_checkpoint_fails_raises_and_the_job_goes_on(tmp_path: Path) -> None:
    gate = Gate()
    target = Target()
    job = sc.Job("job")
    job.source(counting([1, 2], gate), name="source").sink(target.sink(direct=True), name="out")

    async def use(handle: JobHandle) -> None:
        await until(lambda: 0 in gate.waiting)
        gate.open(0)
        await until(lambda: bool(target.open))
        target.fail = {"prepare"}
        with pytest.raises(sc.CheckpointFailed, match="prepare"):
            await handle.stop()
        target.fail = set()
        await until(lambda: 1 in gate.waiting)
        gate.open(1)

    result = await run(job, use, checkpoints=checkpoints(tmp_path))
    assert (result.outcome, target.visible) == ("finished", [1, 2])


async def test_request_at_a_job_that_has_ended_fails_instead_of_waiting(tmp_path: Path) -> None:
    life = life_of(to_target(Target(), direct=True), checkpoints=checkpoints(tmp_path))
    await life.run()
    async with asyncio.timeout(30):
        with pytest.raises(sc.StreamcpError):
            await life.request_checkpoint()


# ---- failures


def failing_job(target: Target, failures: list[BaseException], numbers: Sequence[int]) -> sc.Job:
    """Fails at record 5 with each of `failures`, one per attempt."""

    def step(record: int) -> int:
        if record == 5 and failures:
            raise failures.pop(0)
        return record

    job = sc.Job("job")
    (
        job.source(counting(numbers), name="source")
        .map(step, name="step")
        .sink(target.sink(direct=True), name="out")
    )
    return job


@virtual_time
async def test_restarts_from_the_newest_checkpoint_until_it_succeeds(tmp_path: Path) -> None:
    target = Target()
    job = failing_job(target, [ValueError("one"), ValueError("two")], range(10))
    result = await run(
        job,
        checkpoints=checkpoints(tmp_path),
        restart=sc.Restart.fixed_delay(attempts=2, delay="10s"),
    )
    assert (result.outcome, result.attempts, target.visible) == ("finished", 3, list(range(10)))
    assert result.duration > 20


@virtual_time
async def test_gives_up_when_the_restarts_are_used_up(tmp_path: Path) -> None:
    job = failing_job(Target(), [ValueError("one"), ValueError("two")], range(10))
    life = life_of(
        job,
        checkpoints=checkpoints(tmp_path),
        restart=sc.Restart.fixed_delay(attempts=1, delay="1s"),
    )
    with pytest.raises(JobFailed, match="two"):
        await life.run()
    kinds = [type(event) for event in life.log.events()]
    assert kinds.count(events.JobRestarting) == 1
    assert kinds.count(events.TaskFailed) == 2


async def test_without_a_strategy_the_first_failure_fails_the_job(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="no restart strategy"):
        await run_unwrapped(
            failing_job(Target(), [ValueError("one")], range(10)),
            checkpoints=checkpoints(tmp_path),
            restart=sc.Restart.none(),
        )


@virtual_time
async def test_task_that_ends_by_a_cancelled_error_of_its_own_fails_the_attempt(
    tmp_path: Path,
) -> None:
    class Odd(_Direct):
        async def commit(self, transaction: sc.Transaction, token: None) -> None:
            raise asyncio.CancelledError

    job = sc.Job("job")
    job.source(counting([1]), name="source").sink(Odd(Target()), name="out")
    with pytest.raises(JobFailed, match="CancelledError"):
        await run_unwrapped(job, checkpoints=checkpoints(tmp_path), restart=sc.Restart.none())


class FencedStorage(LocalStorage):
    """Another copy takes over before the first completion."""

    def complete(self, manifest: Any) -> None:
        raise Fenced("another copy has taken over")


@virtual_time
async def test_fenced_attempt_is_not_restarted_even_if_something_else_failed_with_it(
    tmp_path: Path,
) -> None:
    class Fragile(_Direct):
        async def write(self, records: Sequence[Any], transaction: sc.Transaction) -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                raise ValueError("connection lost") from None

    job = sc.Job("job")
    job.source(counting([1]), name="source").sink(Fragile(Target()), name="out")
    settings = job.settings(
        checkpoints=checkpoints(tmp_path, every="1s", mode="unaligned"),
        restart=sc.Restart.fixed_delay(attempts=5, delay="1s"),
    )
    loop: Any = asyncio.get_running_loop()
    storage = FencedStorage(tmp_path, job="job")
    other = sc.Job("job")
    other.source(counting([1]), name="source").sink(Fragile(Target()), name="out")
    life = JobLife(other.graph, settings, (), clock=loop.clock, storage=storage)
    task_errors = []
    try:
        async with asyncio.timeout(2000):
            await life.run()
    except BaseException as error:
        task_errors.append(error)
    kinds = [type(event) for event in life.log.events()]
    assert events.JobRestarting not in kinds
    assert isinstance(task_errors[0], Fenced)


@virtual_time
async def test_stop_while_waiting_to_restart_ends_the_job(tmp_path: Path) -> None:
    job = failing_job(Target(), [ValueError("one")], range(10))
    life = life_of(
        job,
        checkpoints=checkpoints(tmp_path),
        restart=sc.Restart.fixed_delay(attempts=2, delay="1h"),
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(life.run())
        await until(lambda: any(isinstance(e, events.JobRestarting) for e in life.log.events()))
        result = await JobHandle(life, task).stop()
    assert result.outcome == "stopped"


@virtual_time
@pytest.mark.parametrize("waits_before", [True, False])
async def test_request_while_waiting_to_restart_fails_when_the_job_is_stopped(
    tmp_path: Path, waits_before: bool
) -> None:
    """Whether it has waited since before the failure or only since then."""
    closed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def never_opens() -> Any:
        await closed.wait()
        raise ValueError("cannot be opened")
        yield

    async def add(record: int, service: Any) -> int:
        return record

    job = sc.Job("job")
    mapped = job.source(counting([1]), name="source").map(add, uses=never_opens, name="step")
    mapped.sink(Target().sink(direct=True), name="out")
    life = life_of(
        job,
        checkpoints=checkpoints(tmp_path),
        restart=sc.Restart.fixed_delay(attempts=2, delay="1h"),
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(life.run())
        handle = JobHandle(life, task)
        asked = [group.create_task(_refused(handle))] if waits_before else []
        await until(lambda: life.view().attempt > 0)
        closed.set()
        await until(lambda: life.view().state == "restarting")
        asked.append(group.create_task(_refused(handle)))
        await asyncio.sleep(1)
        await handle.stop()
    assert [one.result() for one in asked] == ["stopped"] * len(asked)


async def _refused(handle: JobHandle) -> str:
    with pytest.raises(CheckpointFailed, match=r"stopped|ended"):
        await handle.checkpoint()
    return "stopped"


@virtual_time
async def test_request_at_a_job_that_is_cancelled_fails_instead_of_waiting(tmp_path: Path) -> None:
    gate = Gate()
    job = sc.Job("job")
    source = job.source(counting([1, 2], gate), name="source")

    async def never(record: int) -> int:
        await asyncio.Event().wait()
        return record

    source.map(never, name="stuck", ordered=False).sink(Target().sink(direct=True), name="out")
    life = life_of(job, checkpoints=checkpoints(tmp_path, mode="aligned"))
    task = asyncio.create_task(life.run())
    await until(lambda: life.view().state == "running")
    asked = asyncio.create_task(life.request_checkpoint())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(CheckpointFailed, match="has ended"):
        async with asyncio.timeout(100):
            await asked


async def test_fresh_ignores_older_checkpoints_and_keeps_ids_increasing(tmp_path: Path) -> None:
    target = Target()
    await run(to_target(target, direct=True), checkpoints=checkpoints(tmp_path))
    again = Target()
    result = await run(to_target(again, direct=True), checkpoints=checkpoints(tmp_path), fresh=True)
    assert (result.outcome, again.visible) == ("finished", [1, 2, 3])
    assert result.restored_from is None
    assert result.last_checkpoint is not None
    assert result.last_checkpoint > 1


class BadDisk(LocalStorage):
    """Its first `failures` writes fail."""

    failures = 2

    def write_data(self, checkpoint_id: int, sections: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise StorageError("the disk is full")
        return super().write_data(checkpoint_id, sections)


@virtual_time
async def test_final_checkpoint_that_fails_is_tried_again(tmp_path: Path) -> None:
    target = Target()
    job = to_target(target, direct=True)
    loop: Any = asyncio.get_running_loop()
    settings = job.settings(checkpoints=checkpoints(tmp_path))
    storage = BadDisk(tmp_path, job="job", small_data=0)
    result = await JobLife(job.graph, settings, (), clock=loop.clock, storage=storage).run()
    assert (result.outcome, result.failed_checkpoints) == ("finished", 2)
    assert target.visible == [1, 2, 3]


@virtual_time
async def test_more_failures_in_a_row_than_tolerable_fail_the_job(tmp_path: Path) -> None:
    job = to_target(Target(), direct=True)
    loop: Any = asyncio.get_running_loop()
    settings = job.settings(
        checkpoints=checkpoints(tmp_path, tolerable_failures=1), restart=sc.Restart.none()
    )
    storage = BadDisk(tmp_path, job="job", small_data=0)
    with pytest.raises(JobFailed, match="tolerable_failures=1"):
        await JobLife(job.graph, settings, (), clock=loop.clock, storage=storage).run()
