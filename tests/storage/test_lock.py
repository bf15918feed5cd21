import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamcp.errors import StorageError
from streamcp.storage.local import LocalStorage
from streamcp.storage.lock import JobLock, describe_holder
from streamcp.testing.clock import ManualClock


class FixedClock:
    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 1_700_000_000_000


def lock_at(path: Path) -> JobLock:
    return JobLock(path, job="orders", clock=FixedClock())


def test_second_holder_is_refused_with_the_first_one_named(tmp_path: Path) -> None:
    first, second = lock_at(tmp_path / "lock"), lock_at(tmp_path / "lock")
    first.acquire(take_over=False)
    with pytest.raises(StorageError) as caught:
        second.acquire(take_over=False)
    message = str(caught.value)
    assert "another copy of job 'orders' is running" in message
    assert f"pid {os.getpid()} on " in message
    assert "last heartbeat 2023-11-14 22:13:20+00:00" in message
    assert message.endswith("stop it, or start with take_over=True (--take-over)")


def test_released_lock_is_free(tmp_path: Path) -> None:
    first, second = lock_at(tmp_path / "lock"), lock_at(tmp_path / "lock")
    first.acquire(take_over=False)
    first.release()
    first.release()
    second.acquire(take_over=False)
    second.release()


def test_holder_acquires_again(tmp_path: Path) -> None:
    lock = lock_at(tmp_path / "lock")
    lock.acquire(take_over=False)
    lock.acquire(take_over=False)
    lock.release()


def test_taken_over_lock_keeps_third_copies_and_the_old_holder_out(tmp_path: Path) -> None:
    old, new, third = (lock_at(tmp_path / "lock") for _ in range(3))
    old.acquire(take_over=False)
    new.acquire(take_over=True)
    for other in (third, old):
        with pytest.raises(StorageError, match="another copy"):
            other.acquire(take_over=False)
    new.release()


def test_taking_over_a_free_lock_takes_it(tmp_path: Path) -> None:
    lock = lock_at(tmp_path / "lock")
    lock.acquire(take_over=True)
    with pytest.raises(StorageError, match="another copy"):
        lock_at(tmp_path / "lock").acquire(take_over=False)
    lock.release()


def test_lock_replaced_between_open_and_flock_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_at(tmp_path / "lock")
    real = fcntl.flock
    replaced: list[int] = []

    def flock(descriptor: int, operation: int) -> None:
        real(descriptor, operation)
        if not replaced:
            replaced.append(descriptor)
            (tmp_path / "lock").unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    lock.acquire(take_over=False)
    with pytest.raises(StorageError, match="another copy"):
        lock_at(tmp_path / "lock").acquire(take_over=False)
    lock.release()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"heartbeat": "x"}', b"\xff"])
def test_unreadable_holder_is_admitted(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    assert describe_holder(tmp_path / "lock").endswith("lock does not say which process")


def test_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StorageError, match="could not be locked: No locks available"):
        lock_at(tmp_path / "lock").acquire(take_over=False)


def test_lock_that_cannot_be_looked_at_is_named_and_left_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fstat(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    lock = lock_at(tmp_path / "lock")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fstat", fstat)
        with pytest.raises(StorageError, match="could not be looked at"):
            lock.acquire(take_over=False)
    other = lock_at(tmp_path / "lock")
    other.acquire(take_over=False)
    other.release()


def test_lock_in_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="could not be opened: no such file"):
        lock_at(tmp_path / "none" / "lock").acquire(take_over=False)


def test_sign_of_life_is_written_once_a_second(tmp_path: Path) -> None:
    clock = ManualClock()
    lock = JobLock(tmp_path / "lock", job="orders", clock=clock)
    lock.acquire(take_over=False)
    beats = []
    for _ in range(4):
        lock.touch()
        beats.append(describe_holder(tmp_path / "lock")[-14:-6])
        clock.advance(0.6)
    assert beats == ["22:13:20", "22:13:20", "22:13:21", "22:13:21"]
    lock.release()


def test_sign_of_life_without_the_lock_writes_nothing(tmp_path: Path) -> None:
    lock_at(tmp_path / "lock").touch()
    assert os.listdir(tmp_path) == []


HOLD = """
import sys
from pathlib import Path
from streamcp.storage.local import LocalStorage
storage = LocalStorage(Path(sys.argv[1]), job="orders")
print(storage.start_attempt().number, flush=True)
sys.stdin.read()
"""


def test_killed_holder_leaves_the_lock_free(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"1\n"
        storage = LocalStorage(tmp_path, job="orders")
        with pytest.raises(StorageError, match=f"pid {holder.pid} on"):
            storage.start_attempt()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert storage.start_attempt().number == 2
    storage.close()
