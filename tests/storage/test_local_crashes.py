"""Crashes and errors between any two steps on a disk that loses all that was not made durable."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamcp.errors import StorageError
from streamcp.storage import layout
from streamcp.storage.contract import CheckpointStorage
from streamcp.storage.local import LocalStorage
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.simulation.disk_faults import ERRORS, OPERATIONS, DiskFault, Operation
from streamcp.testing.storage_checks import (
    SECTIONS,
    SUBTASK,
    check_checkpoint_storage,
    complete_example,
)

JOB = "orders"
CHECKPOINTS = Path("/checkpoints")
SEEDS = range(2)

Step = Literal[
    "complete", "defer", "write", "discard", "retain 1", "retain 2", "history", "restart"
]
STEPS: tuple[Step, ...] = (
    "complete",
    "defer",
    "write",
    "discard",
    "retain 1",
    "retain 2",
    "history",
    "restart",
)


class Crash(BaseException):
    """The process ends here."""


def storage_on(disk: SimulatedDisk) -> LocalStorage:
    return LocalStorage(CHECKPOINTS, job=JOB, files=disk.process().files)


@dataclass
class Job:
    """A job through all its lives, and what it was told.

    `complete` are the checkpoints that may be complete, `told` those that were said to be;
    `kept` is how many of them retention has never been allowed to remove."""

    disk: SimulatedDisk
    number: int = 0
    used: int = 0
    complete: set[int] = field(default_factory=set)
    told: list[int] = field(default_factory=list)
    kept: int = 10**6

    def live(
        self, steps: tuple[Step, ...], *, crash_at: int = 10**6, power_fails: bool = True
    ) -> bool:
        """Take the steps, on the disk as it is left by a crash at a step; tell if there was one.

        Afterwards the disk is what the next life finds; without a crash, too."""
        disk = self.disk
        start, left = disk.operations, []

        def before(operation: Operation) -> None:
            if operation.number - start == crash_at:
                left.append(disk.crash(power_fails=power_fails))
            if left:
                raise Crash

        disk.before = before
        with contextlib.suppress(Crash):
            self._take(steps)
        self.disk = left[0] if left else disk.crash(power_fails=power_fails)
        return bool(left)

    def _take(self, steps: tuple[Step, ...]) -> None:
        storage = storage_on(self.disk)
        if not self._start(storage):
            return
        for step in steps:
            if step == "restart":
                storage.close()
                if not self._start(storage):
                    return
            elif step.startswith("retain"):
                self.kept = min(self.kept, int(step[-1]))
                storage.retain(self.kept)
            elif step == "history":
                storage.append_history({"checkpoint_id": self.used})
            else:
                self._checkpoint(storage, step)
        storage.close()

    def _start(self, storage: LocalStorage) -> bool:
        try:
            attempt = storage.start_attempt()
        except StorageError:
            return False
        assert attempt.number > self.number
        assert attempt.next_checkpoint_id > self.used
        self.number, self.used = attempt.number, attempt.next_checkpoint_id - 1
        return True

    def _checkpoint(self, storage: LocalStorage, step: Step) -> None:
        self.used += 1
        try:
            if step in ("complete", "defer"):
                self.complete.add(self.used)
                complete_example(storage, JOB, self.used, self.number, defer=step == "defer")
                self.told.append(self.used)
            else:
                storage.write_data(self.used, [(SUBTASK, SECTIONS[0])])
                storage.defer_data(self.used, [(SUBTASK, SECTIONS[1])])
        except StorageError:
            step = "discard"
        if step == "discard":
            storage.discard(self.used)

    def check(self) -> None:
        """A restart finds what was announced, nothing else, and leaves nothing lying about."""
        storage = storage_on(self.disk)
        attempt = storage.start_attempt()
        ids = [completed.checkpoint_id for completed in attempt.completed]
        assert attempt.number > self.number
        assert attempt.next_checkpoint_id > max([self.used, *ids])
        assert set(ids) <= self.complete
        assert ids == sorted(ids)
        assert set(self.told[-self.kept :]) <= set(ids)
        for checkpoint_id in {*self.told[-self.kept :], *ids[-1:]}:
            assert storage.verify(checkpoint_id) == []
        complete_example(storage, JOB, attempt.next_checkpoint_id, attempt.number)
        storage.retain(1)
        newest = layout.checkpoint_directory(attempt.next_checkpoint_id)
        names = {path.removeprefix(f"{CHECKPOINTS}/{JOB}/") for path in self.disk.paths()}
        assert {name for name in names if name.startswith("chk")} == {
            newest,
            f"{newest}/_metadata",
            f"{newest}/data-{attempt.number}-1",
        }
        assert not [name for name in names if "draft" in name]
        storage.close()


SMALL: tuple[Step, ...] = ("complete", "retain 1", "defer", "retain 1", "write", "discard")


def numbers() -> Iterator[int]:
    """Number all operations; the caller stops behind the last one. A job has a few hundred."""
    yield from range(1, 1000)


def test_local_storage_keeps_the_contract_on_a_simulated_disk() -> None:
    disk = SimulatedDisk(random.Random(0))

    def make(job: str) -> CheckpointStorage:
        return LocalStorage(CHECKPOINTS, job=job, files=disk.process().files)

    check_checkpoint_storage(make)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("power_fails", [False, True])
@pytest.mark.parametrize("lives", [1, 2])
def test_restart_after_a_crash_at_any_step_finds_what_was_announced(
    seed: int, power_fails: bool, lives: int
) -> None:
    """Also when the crash came in a second life, after a first one with checkpoints (P2)."""
    for at in numbers():
        job = Job(SimulatedDisk(random.Random(f"{seed} {at}")))
        for _ in range(lives - 1):
            job.live(SMALL)
        crashed = job.live((*SMALL, "defer"), crash_at=at, power_fails=power_fails)
        job.check()
        if not crashed:
            break
    assert at > 100


def test_power_failure_after_a_killed_process_loses_nothing_that_was_announced() -> None:
    """What the killed one had not yet fsynced is there at the restart, and must be made durable."""
    for at in range(1, 60):
        for seed in range(2):
            job = Job(SimulatedDisk(random.Random(f"{seed} {at}")))
            job.live(("defer",), crash_at=at, power_fails=False)
            job.live(("complete",))
            job.check()


def test_two_crashes_in_a_row_lose_nothing_that_the_first_left() -> None:
    """The second one comes while the restart tidies up."""
    for at in range(1, 40):
        for seed in range(3):
            job = Job(SimulatedDisk(random.Random(f"{seed} {at}")))
            job.live(("complete", "write", "complete", "retain 1"), crash_at=75 + 15 * seed)
            job.live((), crash_at=at)
            job.check()


faults = st.lists(
    st.builds(
        DiskFault,
        st.sampled_from(OPERATIONS),
        st.integers(1, 40),
        st.sampled_from(ERRORS),
        st.sampled_from(("none", "part", "whole")),
        st.integers(1, 4),
    ),
    max_size=3,
)
lives = st.lists(
    st.tuples(
        st.lists(st.sampled_from(STEPS), max_size=12),
        st.integers(1, 250),
        st.booleans(),
        faults,
    ),
    min_size=1,
    max_size=4,
)


@given(st.integers(0, 2**32), lives)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_lives_with_crashes_and_errors_keep_what_was_announced(
    seed: int, lives: list[tuple[list[Step], int, bool, list[DiskFault]]]
) -> None:
    job = Job(SimulatedDisk(random.Random(seed)))
    for steps, crash_at, power_fails, planned in lives:
        job.disk.plan(*planned)
        job.live(tuple(steps), crash_at=crash_at, power_fails=power_fails)
    job.check()


@pytest.mark.parametrize("effect", ["none", "part", "whole"])
@pytest.mark.parametrize("operation", [*OPERATIONS, "close", "listdir", "pread"])
def test_job_goes_on_after_any_single_disk_error(
    operation: str, effect: Literal["none", "part", "whole"]
) -> None:
    for at in numbers():
        job = Job(SimulatedDisk(random.Random(at)))
        job.live(("complete",))
        fault = DiskFault(operation, at, errno.EIO, effect)
        job.disk.plan(fault)
        lines: list[str] = []
        job.disk.trace = lines.append
        job.live((*SMALL, "defer", "history"))
        assert len(job.told) >= 3 or job.number == 1
        job.check()
        if not any(line.endswith("EIO") for line in lines):
            break


def test_full_disk_fails_checkpoints_until_there_is_room_again() -> None:
    disk = SimulatedDisk(random.Random(0))
    storage = storage_on(disk)
    number = storage.start_attempt().number
    complete_example(storage, JOB, 1, number)
    disk.capacity = 2000
    for checkpoint_id in (2, 3):
        with pytest.raises(StorageError, match="disk full"):
            complete_example(storage, JOB, checkpoint_id, number)
        storage.discard(checkpoint_id)
    assert storage.verify(1) == []
    disk.capacity = None
    complete_example(storage, JOB, 4, number)
    assert storage.retain(1) == [1]
    assert {path.split("/")[3] for path in disk.paths() if "chk-" in path} == {
        layout.checkpoint_directory(4)
    }
    storage.close()
