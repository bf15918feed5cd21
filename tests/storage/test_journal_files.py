"""The journal's files: what is read back after torn writes, damage, crashes, and old attempts."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.checkpoint.journal import Answer, JournalHead
from streamcp.errors import StorageError
from streamcp.storage.contract import StoredJournal
from streamcp.storage.journal import JournalFiles
from streamcp.storage.journal_format import MAGIC, decode_file, encode_group, encode_head
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.simulation.disk_faults import DiskFault, Operation

DIRECTORY = Path("/job/journal")
HEAD = JournalHead(3, 7, "fork", "life")
TABLE: list[dict[str, Any]] = [
    {"name": "a.B", "kind": "dataclass", "fields": ["x"]},
    {"name": "a.C"},
    {"name": "a.D"},
]


class Crash(BaseException):
    """The process ends here."""


def answer(serial: int, **fields: object) -> Answer:
    given = {"cut": 5, "state": b"\1\2", "number": 4, "at": 17, "value": b"x" * serial} | fields
    return Answer(serial=serial, step="ask", content=bytes(16), **given)  # type: ignore[arg-type]


def journal_of(attempt: int, disk: SimulatedDisk | None = None) -> JournalFiles:
    files = (disk or new_disk()).process().files
    return JournalFiles(DIRECTORY, attempt, check_newest=lambda: None, files=files)


def new_disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(7))


def serials(found: StoredJournal | None) -> list[int]:
    assert found is not None
    return [one.serial for _, answers in found.pieces for one in answers]


def written(disk: SimulatedDisk, attempt: int, *segments: Sequence[int]) -> JournalFiles:
    """The journal of an attempt that carried the first numbers over, and appended the others."""
    journal = journal_of(attempt, disk)
    carried, *appended = segments
    journal.begin(JournalHead(attempt, 0), TABLE[:1], [answer(n, cut=None) for n in carried])
    for segment, numbers in enumerate(appended, 1):
        for number in numbers:
            journal.append(segment, TABLE[: segment + 1], [answer(number)])
    return journal


def test_journal_is_read_as_it_was_written() -> None:
    disk = new_disk()
    written(disk, 3, [1], [2, 3], [4])
    found = journal_of(4, disk).read()
    assert found is not None
    assert found.head == JournalHead(3, 0)
    assert found.pieces == (
        (TABLE[:1], [answer(1, cut=None)]),
        (TABLE[:2], [answer(2), answer(3)]),
        (TABLE[:3], [answer(4)]),
    )


def test_there_is_nothing_to_read_without_an_earlier_journal() -> None:
    disk = new_disk()
    assert journal_of(3, disk).read() is None
    written(disk, 3, [1])
    assert journal_of(3, disk).read() is None


@given(st.integers(min_value=0))
def test_file_that_was_torn_is_read_up_to_its_last_whole_group(end: int) -> None:
    ends = [len(encode_head(HEAD))]
    raw = encode_head(HEAD)
    for number in (1, 2, 3):
        raw += encode_group([answer(number)], TABLE[:number] if number == 1 else [])
        ends.append(len(raw))
    end %= len(raw) + 1
    decoded = decode_file(raw[:end], "file")
    whole = sum(one <= end for one in ends)
    assert (decoded is None) == (whole == 0)
    assert decoded is None or [one.serial for one in decoded.answers] == [1, 2, 3][: whole - 1]


@given(st.integers(min_value=0), st.integers(1, 255))
def test_damaged_byte_ends_the_file_there(place: int, change: int) -> None:
    groups = [encode_group([answer(number)], []) for number in (1, 2, 3)]
    raw = bytearray(encode_head(HEAD) + b"".join(groups))
    place = len(MAGIC) + place % (len(raw) - len(MAGIC))
    raw[place] ^= change
    decoded = decode_file(bytes(raw), "file")
    before = [1, 2, 3][: sum(place >= len(raw) - sum(map(len, groups[n:])) for n in (1, 2, 3))]
    assert decoded is None or [one.serial for one in decoded.answers] == before


def test_newer_format_is_refused() -> None:
    raw = encode_head(HEAD).replace(b"journal 001", b"journal 002")
    with pytest.raises(StorageError, match=r"format 2.*upgrade"):
        decode_file(raw, "file")


def test_newest_attempt_counts_and_its_beginning_removes_the_others() -> None:
    disk = new_disk()
    old = written(disk, 3, [1], [2])
    written(disk, 5, [11], [12])
    old.append(1, TABLE, [answer(3)])  # it does not know yet that it is over
    old.append(2, TABLE, [answer(4)])
    assert serials(journal_of(6, disk).read()) == [11, 12]
    written(disk, 6, [])
    assert journal_of(7, disk).read() is None


def test_answers_of_an_old_attempt_are_read_while_no_newer_one_has_a_journal() -> None:
    disk = new_disk()
    old = written(disk, 3, [1], [2])
    journal_of(5, disk)  # begins nothing
    old.append(1, TABLE, [answer(3)])
    assert serials(journal_of(6, disk).read()) == [1, 2, 3]


@pytest.mark.parametrize("power_fails", [False, True])
def test_crash_at_any_moment_of_a_beginning_leaves_one_journal_whole(power_fails: bool) -> None:
    for at in range(1, 100):
        disk = new_disk()
        written(disk, 3, [1], [2, 3])
        left: list[SimulatedDisk] = []
        start = disk.operations

        def before(
            operation: Operation,
            disk: SimulatedDisk = disk,
            left: list[SimulatedDisk] = left,
            at: int = at + start,
        ) -> None:
            if operation.number == at:
                left.append(disk.crash(power_fails=power_fails))
                raise Crash

        disk.before = before
        with contextlib.suppress(Crash):
            written(disk, 4, [21, 22])
        if not left:
            assert at > 5
            return
        assert serials(journal_of(5, left[0]).read()) in ([1, 2, 3], [21, 22])
    raise AssertionError("it never ended")


def test_what_was_appended_survives_a_loss_of_power() -> None:
    disk = new_disk()
    journal = written(disk, 3, [], [1])
    for number in range(2, 6):
        journal.append(1 + number // 3, TABLE, [answer(number)])
        found = journal_of(4, disk.crash()).read()
        assert serials(found) == list(range(1, number + 1))


def test_failed_append_spoils_only_its_own_segment() -> None:
    disk = new_disk()
    journal = written(disk, 3, [], [1])
    disk.plan(DiskFault("write", 1, errno.ENOSPC, "part"))
    with pytest.raises(StorageError, match="disk full"):
        journal.append(1, TABLE, [answer(2)])
    journal.append(2, TABLE, [answer(3)])
    assert serials(journal_of(4, disk.crash()).read()) == [1, 3]


def test_removed_segments_are_gone_and_nothing_stays_open() -> None:
    disk = new_disk()
    process = disk.process()
    journal = JournalFiles(DIRECTORY, 3, check_newest=lambda: None, files=process.files)
    journal.begin(HEAD, [], [])
    journal.append(1, [], [answer(1)])
    journal.append(2, [], [answer(2)])
    journal.remove([1, 2, 9])
    assert process.open_paths() == []
    assert journal_of(4, disk).read() is None
