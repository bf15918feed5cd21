from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import pytest

from streamcp.connectors import files
from streamcp.connectors.files import sink as sink_module
from streamcp.connectors.files.sink import JsonLines, Token
from streamcp.errors import SerializationError, StorageError
from streamcp.identifiers import TransactionId, transaction_prefix
from streamcp.operators.sinks import Transaction, TransactionalSink

T = TypeVar("T")
unbuffered = pytest.mark.parametrize("buffer", [0], indirect=True)
buffered_or_not = pytest.mark.parametrize("buffer", [0, 10, 1000], indirect=True)
FIRST = Transaction("job.sink.0.1.0")
SECOND = Transaction("job.sink.0.1.1")


@pytest.fixture(autouse=True)
def buffer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if (size := getattr(request, "param", None)) is not None:
        monkeypatch.setattr(sink_module, "_BUFFER", size)


def committed(directory: Path) -> list[Any]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(directory.glob("*.jsonl"))]
    return [json.loads(line) for text in texts for line in text.split("\n")[:-1]]


def hidden(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith("."))


async def run_transaction(sink: JsonLines, transaction: Transaction, *writes: list[Any]) -> Token:
    for records in writes:
        await sink.write(records, transaction)
    token = await sink.prepare(transaction)
    await sink.commit(transaction, token)
    return token


# ---- what is written


async def test_sink_keeps_the_transactional_contract(tmp_path: Path) -> None:
    sink: TransactionalSink[object, Token] = files.json_lines(tmp_path)()

    await sink.abort(FIRST)


@buffered_or_not
async def test_records_appear_at_commit_and_not_before(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "out"
    async with files.json_lines(directory)() as sink:
        await sink.write([1, {"a": "é\n"}], FIRST)
        await sink.write([[2]], FIRST)
        token = await sink.prepare(FIRST)
        assert os.listdir(directory) == [".job.sink.0.1.0.pending"]

        await sink.commit(FIRST, token)

    assert token == ("job.sink.0.1.0.jsonl", 19)
    assert os.listdir(directory) == ["job.sink.0.1.0.jsonl"]
    assert committed(directory) == [1, {"a": "é\n"}, [2]]


async def test_transaction_without_records_leaves_no_file(tmp_path: Path) -> None:
    async with files.json_lines(tmp_path)() as sink:
        assert await run_transaction(sink, FIRST) is None
        assert await run_transaction(sink, SECOND, [], []) is None

    assert os.listdir(tmp_path) == []


async def test_each_subtask_gets_an_object_of_its_own(tmp_path: Path) -> None:
    factory = files.json_lines(tmp_path)

    assert factory() is not factory()
    assert os.listdir(tmp_path) == []


@dataclass(frozen=True)
class Money:
    currency: str
    amount: object


class Pair(NamedTuple):
    left: int
    right: object


class Colour(Enum):
    RED = "red"


async def test_what_json_can_hold_is_written(tmp_path: Path) -> None:
    at = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    uuid = UUID(int=1)
    async with files.json_lines(tmp_path)() as sink:
        await run_transaction(
            sink, FIRST, [Money("EUR", Pair(1, Colour.RED)), at, uuid, float("nan"), None]
        )

    assert committed(tmp_path) == [
        {"currency": "EUR", "amount": {"left": 1, "right": "red"}},
        "2024-01-02T03:04:05+00:00",
        str(uuid),
        None,
        None,
    ]


@buffered_or_not
@pytest.mark.parametrize(
    ("record", "said"),
    [
        (Money("EUR", Decimal(1)), "record of type Money .*Decimal.*map it to"),
        (b"bytes", "record of type bytes .*bytes"),
        ({1: 2}, "record of type dict .*key must be str"),
        (2**64, "record of type int .*64-bit"),
    ],
)
async def test_record_that_is_no_json_names_type_and_remedy_and_writes_nothing(
    tmp_path: Path, record: object, said: str
) -> None:
    async with files.json_lines(tmp_path)() as sink:
        await sink.write(["before"], FIRST)
        with pytest.raises(SerializationError, match=said):
            await sink.write(["good", record], FIRST)
        await run_transaction(sink, FIRST, ["after"])

    assert committed(tmp_path) == ["before", "after"]


async def test_job_that_counts_from_the_beginning_again_replaces_nothing(tmp_path: Path) -> None:
    for run in range(3):
        async with files.json_lines(tmp_path)() as sink:
            await run_transaction(sink, FIRST, [run])

    assert sorted(committed(tmp_path)) == [0, 1, 2]
    assert len(os.listdir(tmp_path)) == 3


# ---- commit and abort


async def test_commit_again_changes_nothing(tmp_path: Path) -> None:
    async with files.json_lines(tmp_path)() as sink:
        token = await run_transaction(sink, FIRST, [1])
    async with files.json_lines(tmp_path)() as restarted:
        await restarted.commit(FIRST, token)

    assert committed(tmp_path) == [1]


async def test_commit_of_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    async with files.json_lines(tmp_path)() as sink:
        with pytest.raises(StorageError, match=r"neither it nor \.job\.sink\.0\.1\.0\.pending"):
            await sink.commit(FIRST, ("job.sink.0.1.0.jsonl", 3))


async def test_commit_of_a_file_with_another_length_is_an_error(tmp_path: Path) -> None:
    async with files.json_lines(tmp_path)() as sink:
        await sink.write([1, 2, 3], FIRST)
        token = await sink.prepare(FIRST)
        os.truncate(tmp_path / ".job.sink.0.1.0.pending", 2)
        with pytest.raises(StorageError, match="has 2 bytes and not the 6"):
            await sink.commit(FIRST, token)


@buffered_or_not
async def test_abort_removes_an_open_and_a_prepared_transaction(tmp_path: Path) -> None:
    async with files.json_lines(tmp_path)() as sink:
        await sink.write([1], FIRST)
        await sink.prepare(FIRST)
        await sink.write([2], SECOND)

        await sink.abort(FIRST)
        await sink.abort(SECOND)
        await sink.abort(SECOND)

    assert os.listdir(tmp_path) == []


@buffered_or_not
async def test_leaving_removes_what_was_not_prepared(tmp_path: Path) -> None:
    async with files.json_lines(tmp_path)() as sink:
        await sink.write([1], FIRST)
        await sink.prepare(FIRST)
        await sink.write([2], SECOND)

    assert hidden(tmp_path) == [".job.sink.0.1.0.pending"]


@buffered_or_not
async def test_two_transactions_can_be_open_at_once(tmp_path: Path) -> None:
    async with files.json_lines(tmp_path)() as sink:
        await sink.write(["first"], FIRST)
        await sink.write(["second"], SECOND)
        await run_transaction(sink, FIRST, ["first too"])
        await run_transaction(sink, SECOND)

    assert committed(tmp_path) == ["first", "first too", "second"]


@buffered_or_not
async def test_concurrent_writes_to_one_transaction_are_all_kept(tmp_path: Path) -> None:
    async with files.json_lines(tmp_path)() as sink:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(sink.write([number], FIRST))
            group.create_task(asyncio.sleep(0))
        await run_transaction(sink, FIRST)

    assert sorted(committed(tmp_path)) == list(range(50))


NEIGHBOURS = [("a", "b"), ("a", "b-c"), ("a-b", "c"), ("a.b", "c"), ("a", "b.c"), ("a/b", "é ~%")]


@pytest.mark.parametrize(("job", "sink_name"), NEIGHBOURS)
async def test_abort_others_leaves_neighbours_alone(
    tmp_path: Path, job: str, sink_name: str
) -> None:
    ids = {pair: str(TransactionId(*pair, 0, 1, 0)) for pair in NEIGHBOURS}
    kept = str(TransactionId(job, sink_name, 3, 1, 7))
    async with files.json_lines(tmp_path)() as sink:
        for transaction_id in [*ids.values(), kept]:
            await sink.write([transaction_id], Transaction(transaction_id))
            await sink.prepare(Transaction(transaction_id))

        await sink.abort_others(transaction_prefix(job, sink_name), [kept])

    others = [ids[pair] for pair in NEIGHBOURS if pair != (job, sink_name)]
    assert hidden(tmp_path) == sorted(f".{name}.pending" for name in [*others, kept])


async def test_abort_others_leaves_other_files_alone(tmp_path: Path) -> None:
    for name in (".job.sink.0.1.0.jsonl", ".job.sink.notes", "job.sink.0.1.0.pending", ".pending"):
        (tmp_path / name).touch()

    await files.json_lines(tmp_path)().abort_others("job.sink.", [])
    await files.json_lines(tmp_path / "none")().abort_others("job.sink.", [])

    assert len(os.listdir(tmp_path)) == 4


# ---- failures


@unbuffered
async def test_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    full = [False]

    def write_some(descriptor: int, data: memoryview, offset: int) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data[:5], offset)

    def write_and_fill(descriptor: int, data: memoryview, offset: int) -> int:
        written = write_some(descriptor, data, offset)
        full[0] = True
        return written

    async with files.json_lines(tmp_path)() as sink:
        monkeypatch.setattr(os, "pwrite", write_some)
        await sink.write(["before"], FIRST)
        monkeypatch.setattr(os, "pwrite", write_and_fill)
        with pytest.raises(StorageError, match=r"pending could not be written: disk full"):
            await sink.write(["a long record"], FIRST)
        assert (tmp_path / ".job.sink.0.1.0.pending").read_bytes() == b'"before"\n'
        monkeypatch.setattr(os, "pwrite", write_some)
        full[0] = False
        await run_transaction(sink, FIRST, ["a long record"])

    assert committed(tmp_path) == ["before", "a long record"]


async def test_full_disk_at_prepare_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: memoryview, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with files.json_lines(tmp_path)() as sink:
        await sink.write(["buffered"], FIRST)
        with monkeypatch.context() as small_disk:
            small_disk.setattr(os, "pwrite", full)
            with pytest.raises(StorageError, match="disk full"):
                await sink.prepare(FIRST)
        await run_transaction(sink, FIRST, ["more"])

    assert committed(tmp_path) == ["buffered", "more"]


async def test_failed_fsync_is_never_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    async with files.json_lines(tmp_path)() as sink:
        await sink.write([1], FIRST)
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", fail)
            with pytest.raises(StorageError, match="could not be fsynced"):
                await sink.prepare(FIRST)
        with pytest.raises(StorageError, match="could not be fsynced"):
            await sink.prepare(FIRST)
        with pytest.raises(StorageError, match="could not be fsynced"):
            await sink.write([2], SECOND)
        await sink.abort(FIRST)
        await sink.write([2], SECOND)

    assert os.listdir(tmp_path) == []


@unbuffered
async def test_cancelled_write_is_undone_although_its_thread_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    began, release = threading.Event(), threading.Event()

    def slow(descriptor: int, data: memoryview, offset: int) -> int:
        began.set()
        assert release.wait(10)
        return pwrite(descriptor, data, offset)

    async with files.json_lines(tmp_path)() as sink:
        await sink.write(["before"], FIRST)
        monkeypatch.setattr(os, "pwrite", slow)
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(sink.write(["cancelled, and long"], FIRST))
            await asyncio.to_thread(began.wait)
            writing.cancel()
            again = group.create_task(sink.write(["again"], FIRST))
            await asyncio.sleep(0)
            release.set()
        assert writing.cancelled()
        assert not again.cancelled()
        await run_transaction(sink, FIRST)

    assert committed(tmp_path) == ["before", "again"]


@unbuffered
async def test_leaving_during_a_write_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open
    began, release = threading.Event(), threading.Event()

    def slow(path: Any, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith(".pending"):
            began.set()
            assert release.wait(10)
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", slow)
    async with asyncio.TaskGroup() as group, files.json_lines(tmp_path)() as sink:
        writing = group.create_task(sink.write([1], FIRST))
        await asyncio.to_thread(began.wait)
        writing.cancel()
        asyncio.get_running_loop().call_soon(release.set)

    assert os.listdir(tmp_path) == []


async def test_opening_that_is_cancelled_waits_for_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be opened is not closed either: nobody else would wait."""
    began, release = threading.Event(), threading.Event()
    ended: list[str] = []
    mkdir = os.mkdir

    def slow(path: Any) -> None:
        began.set()
        assert release.wait(10)
        mkdir(path)
        ended.append("thread")

    monkeypatch.setattr(os, "mkdir", slow)

    async def open_it() -> None:
        try:
            async with files.json_lines(tmp_path / "new")():
                pass
        finally:
            ended.append("opening")

    async with asyncio.TaskGroup() as group:
        opening = group.create_task(open_it())
        await asyncio.to_thread(began.wait)
        opening.cancel()
        asyncio.get_running_loop().call_later(0.01, release.set)

    assert ended == ["thread", "opening"]


# ---- cancelled at every await, with threads that end after a fixed number of turns


class ManualThreads:
    """Stands in for the loop's thread pool: calls run on the loop, some turns later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
        self.turns = turns
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "run_in_executor", self.run_in_executor)

    def run_in_executor(
        self, executor: Executor | None, call: Callable[[], T]
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._later(self.turns, future, call)
        return future

    def _later(self, turns: int, future: asyncio.Future[T], call: Callable[[], T]) -> None:
        loop = asyncio.get_running_loop()
        if turns:
            loop.call_soon(self._later, turns - 1, future, call)
        else:
            future.set_result(call())


async def cancelled_after(turns: int, operation: Callable[[], Awaitable[T]]) -> T:
    """Cancel `operation` after some turns of the loop; if that came in time, do it again."""

    async def operate() -> T:
        return await operation()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(operate())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
    return await operation() if task.cancelled() else task.result()


@buffered_or_not
@pytest.mark.parametrize("turns", range(12))
async def test_each_call_cancelled_at_any_await_and_repeated_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    ManualThreads(monkeypatch, turns=3)
    async with files.json_lines(tmp_path)() as sink:
        await cancelled_after(turns, lambda: sink.write(["one", "two"], FIRST))
        await cancelled_after(turns, lambda: sink.write(["three"], FIRST))
        token = await cancelled_after(turns, lambda: sink.prepare(FIRST))
        await cancelled_after(turns, lambda: sink.commit(FIRST, token))
        await cancelled_after(turns, lambda: sink.write(["never"], SECOND))
        await cancelled_after(turns, lambda: sink.abort(SECOND))

    assert committed(tmp_path) == ["one", "two", "three"]
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize("turns", range(12))
@buffered_or_not
async def test_transaction_goes_on_after_a_cancelled_prepare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    ManualThreads(monkeypatch, turns=3)
    async with files.json_lines(tmp_path)() as sink:
        await sink.write(["one"], FIRST)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(sink.prepare(FIRST))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
        if task.cancelled():
            await run_transaction(sink, FIRST, ["two"])

    assert committed(tmp_path) == (["one", "two"] if task.cancelled() else [])


async def test_remains_of_an_older_transaction_of_that_name_are_overwritten(
    tmp_path: Path,
) -> None:
    (tmp_path / ".job.sink.0.1.0.pending").write_text("remains of an older run\n" * 9)
    async with files.json_lines(tmp_path)() as sink:
        await run_transaction(sink, FIRST, ["new"])

    assert committed(tmp_path) == ["new"]


# ---- crashes between any two steps


class Crash(BaseException):
    """The process ends here."""


CRASH_POINTS = ["open", "pwrite", "ftruncate", "fsync", "replace"]


class CrashingSystem:
    """Ends the process before, or after, the n-th call of the operating system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls_left = -1
        for name in CRASH_POINTS:
            monkeypatch.setattr(os, name, self._crashing(getattr(os, name)))

    def _crashing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._step()
            result = call(*args, **kwargs)
            self._step()
            return result

        return counted

    def _step(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise Crash


@dataclass
class Job:
    """Writes the numbers below 30; a checkpoint after each 10 is complete or is not."""

    directory: Path
    attempt: int = 0
    position: int = 0  # of the last complete checkpoint
    named: list[tuple[TransactionId, Token]] = field(default_factory=list)

    async def run(self) -> None:
        self.attempt += 1
        sink = files.json_lines(self.directory)()
        try:
            await self._write_the_rest(sink)
        except Crash:
            for pending in sink._pending.values():
                pending._close()
            raise

    async def _write_the_rest(self, sink: JsonLines) -> None:
        await sink.__aenter__()
        await self._recover(sink)
        for number, position in enumerate(range(self.position, 30, 10)):
            transaction = TransactionId("j", "s", 0, self.attempt, number)
            await sink.write(range(position, position + 4), Transaction(str(transaction)))
            await sink.write(range(position + 4, position + 10), Transaction(str(transaction)))
            token = await sink.prepare(Transaction(str(transaction)))
            # The checkpoint is complete: one atomic step, of the storage.
            self.position, self.named = position + 10, [(transaction, token)]
            await sink.commit(Transaction(str(transaction)), token)
        await sink.__aexit__(None, None, None)

    async def _recover(self, sink: JsonLines) -> None:
        kept = [str(transaction) for transaction, _ in self.named]
        await sink.abort_others(transaction_prefix("j", "s"), kept)
        for transaction, token in self.named:
            await sink.commit(Transaction(str(transaction)), token)


def crash_points() -> Iterator[tuple[int, int]]:
    for first in range(1, 60):
        yield first, 0
        yield first, first % 7 + 1


@buffered_or_not
async def test_crash_at_any_step_shows_each_record_once_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = CrashingSystem(monkeypatch)
    crashes = 0
    for number, point in enumerate(crash_points()):
        job = Job(tmp_path / str(number))
        for calls in point:  # the second crash comes early in the recovery from the first
            system.calls_left = calls
            try:
                await job.run()
            except Crash:
                crashes += 1
        system.calls_left = -1
        await job.run()

        assert sorted(committed(job.directory)) == list(range(30)), point
        assert hidden(job.directory) == [], point
    assert crashes > 100
