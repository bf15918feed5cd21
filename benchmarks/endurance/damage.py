"""Damaged checkpoints: what is said, what is restored, and what is refused.

A small job is stopped, so that its newest checkpoint is the one it would go on from. For each file
of that checkpoint and each way to damage it, a copy of the folder is damaged and the job started.
A manifest has a second name, in the completion log: verify may tell either one, and removing one
of them loses nothing, so that the newest checkpoint is restored all the same.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

import streamcp as sc
from benchmarks.harness import Row, check
from streamcp.storage.local import LocalStorage

JOB = "damaged"


def truncate(file: Path) -> None:
    """Cut the second half off."""
    os.truncate(file, file.stat().st_size // 2)


def flip(file: Path) -> None:
    """Change one bit of the byte in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    with open(file, "r+b") as out:  # in place: the file may have a second name
        out.write(content)


def delete(file: Path) -> None:
    """Remove it."""
    file.unlink()


WAYS: Mapping[str, Callable[[Path], None]] = {
    "truncated": truncate,
    "with a byte changed": flip,
    "deleted": delete,
}


@sc.source
async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    """Count, a thousand times a second."""
    while True:
        await anyio.sleep(0.001)
        yield position, position + 1
        position += 1


def make_job(folder: Path, *, exactly_once: bool) -> sc.Job:
    """A running count into files: exactly once, or into nothing."""
    job = sc.Job(JOB, checkpoints=sc.Checkpoints(to=folder / "checkpoints"))
    counts = job.source(numbers(), name="numbers").key_by(lambda number: number % 10)
    totals = counts.count(name="count")
    if exactly_once:
        totals.sink(sc.files.json_lines(folder / "out"), name="out")
    else:
        totals.sink(sc.discard(), name="out")
    return job


async def measure(say: Callable[[str], None]) -> Sequence[Row]:
    """Damage every file in every way, for both kinds of sink."""
    rows: list[Row] = []
    for exactly_once in (False, True):
        kind = "exactly-once sink" if exactly_once else "at-least-once sink"
        with tempfile.TemporaryDirectory() as name:
            whole = Path(name) / "whole"
            await _run_for_a_moment(whole, exactly_once=exactly_once)
            for number, (file, how) in enumerate(_cases(whole)):
                say(f"{kind}, {file} {how}")
                copy = Path(name) / str(number)
                _copy(whole, copy)
                case = _Case(f"{kind}, {file} {how}", copy, _names(copy, file), exactly_once)
                WAYS[how](copy / "checkpoints" / JOB / file)
                rows += await _damaged(case, lost=how != "deleted" or len(case.names) == 1)
    return rows


async def _run_for_a_moment(folder: Path, *, exactly_once: bool) -> None:
    async with make_job(folder, exactly_once=exactly_once).start() as running:
        for _ in range(3):
            await anyio.sleep(0.05)
            await running.checkpoint()
        await anyio.sleep(0.05)


def _newest(folder: Path) -> Path:
    return max((folder / "checkpoints" / JOB).glob("chk-*"))


def _cases(folder: Path) -> list[tuple[str, str]]:
    newest = _newest(folder)
    return [
        (f"{newest.name}/{file.name}", how) for file in sorted(newest.iterdir()) for how in WAYS
    ]


def _copy(source: Path, target: Path) -> None:
    """Copy a folder so that files with two names in it are such in the copy too."""
    copies: dict[int, Path] = {}
    for file in sorted(source.rglob("*")):
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            place.mkdir(exist_ok=True)
        elif (inode := file.stat().st_ino) in copies:
            place.hardlink_to(copies[inode])
        else:
            shutil.copy(file, place)
            copies[inode] = place


class _Warnings(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@dataclass(frozen=True, slots=True)
class _Case:
    """A damaged copy: its folder, and the names of the file that is damaged there."""

    text: str
    folder: Path
    names: Sequence[str]
    exactly_once: bool

    @property
    def newest(self) -> int:
        """The checkpoint that is damaged."""
        return int(_newest(self.folder).name.removeprefix("chk-"))


def _names(folder: Path, file: str) -> list[str]:
    """All names of one file, by its first."""
    checkpoints = folder / "checkpoints" / JOB
    return [str(other) for other in checkpoints.rglob("*") if other.samefile(checkpoints / file)]


async def _damaged(case: _Case, *, lost: bool) -> list[Row]:
    """Verify, then start: without an option and, where that is refused, with it."""
    newest = case.newest
    found = LocalStorage(case.folder / "checkpoints", job=JOB).verify(newest)
    named = any(name in sentence for name in case.names for sentence in found)
    rows = [check(f"{case.text}: verify names it", named, "; ".join(found))]
    if not lost:
        restored, _ = await _restart(case)
        text = f"{case.text}: nothing is lost, so it is restored"
        return [*rows, check(text, restored == newest, f"restored {restored}")]
    if case.exactly_once:
        rows.append(await _refused(case))
    restored, warned = await _restart(case, accept=case.exactly_once)
    text = f"{case.text}: the one before it restored, with a warning"
    detail = f"restored {restored}" + ("" if warned else ", no warning")
    return [*rows, check(text, warned and restored == newest - 1, detail)]


async def _refused(case: _Case) -> Row:
    """Output may have been committed since: the job stops, and says which option accepts that."""
    text = f"{case.text}: refused, with the remedy"
    before = sorted((case.folder / "out").iterdir())
    try:
        restored, _ = await _restart(case)
    except sc.RestoreRefused as error:
        told = all(part in str(error) for part in ("'out'", "accept_duplicates", "twice"))
        untouched = before == sorted((case.folder / "out").iterdir())
        return check(text, told and untouched, "" if told else str(error))
    return check(text, False, f"checkpoint {restored} was restored without a word")


async def _restart(case: _Case, *, accept: bool = False) -> tuple[int | None, bool]:
    """Start the job and stop it; tell what it restored, and whether it warned."""
    warnings = _Warnings()
    logger = logging.getLogger("streamcp")
    logger.addHandler(warnings)
    logger.propagate = False
    try:
        job = make_job(case.folder, exactly_once=case.exactly_once)
        async with job.start(accept_duplicates=accept) as running:
            result = await running.stop()
    finally:
        logger.removeHandler(warnings)
        logger.propagate = True
    return result.restored_from, any("damaged" in text for text in warnings.texts)
