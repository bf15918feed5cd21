"""Damaged checkpoints: what is said, what is restored, and what is refused.

A small job is stopped, so that its newest checkpoint is the one it would go on from. For each file
of that checkpoint and each way to damage it, a copy of the folder is damaged and the job started.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
                WAYS[how](copy / "checkpoints" / JOB / file)
                rows += await _damaged(f"{kind}, {file} {how}", copy, exactly_once=exactly_once)
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


async def _damaged(name: str, folder: Path, *, exactly_once: bool) -> list[Row]:
    newest = _newest(folder)
    file = name.split()[-3] if "byte" not in name else name.split(", ")[1].split()[0]
    found = _verify(folder, int(newest.name.removeprefix("chk-")))
    rows = [check(f"{name}: verify names it", any(newest.name in text for text in found), file)]
    warnings = _Warnings()
    logger = logging.getLogger("streamcp")
    logger.addHandler(warnings)
    logger.propagate = False
    try:
        if exactly_once:
            rows += await _refused(name, folder)
        rows.append(await _restored(name, folder, warnings, accept=exactly_once))
    finally:
        logger.removeHandler(warnings)
        logger.propagate = True
    return rows


def _verify(folder: Path, checkpoint_id: int) -> list[str]:
    return LocalStorage(folder / "checkpoints", job=JOB).verify(checkpoint_id)


async def _refused(name: str, folder: Path) -> list[Row]:
    """Output may have been committed since: the job stops, and says which option accepts that."""
    before = sorted(file.name for file in (folder / "out").iterdir())
    try:
        async with make_job(folder, exactly_once=True).start() as running:
            await running.stop()
    except sc.RestoreRefused as error:
        text = str(error)
        told = "'out'" in text and "accept_duplicates" in text and "twice" in text
        untouched = before == sorted(file.name for file in (folder / "out").iterdir())
        return [
            check(f"{name}: refused, with the remedy", told and untouched, "" if told else text)
        ]
    return [check(f"{name}: refused, with the remedy", False, "it was restored without a word")]


async def _restored(name: str, folder: Path, warnings: _Warnings, *, accept: bool) -> Row:
    """The checkpoint before it is restored, with a warning."""
    try:
        async with make_job(folder, exactly_once=accept).start(
            accept_duplicates=accept or None
        ) as running:
            await running.checkpoint()
            view = running.view()
    except sc.StreamcpError as error:
        return check(f"{name}: the one before it restored, with a warning", False, str(error))
    warned = [text for text in warnings.texts if "damaged" in text]
    newest = int(_newest_before(folder))
    passed = bool(warned) and view.restored_from == newest
    return check(
        f"{name}: the one before it restored, with a warning",
        passed,
        f"restored {view.restored_from}" + ("" if warned else ", no warning"),
    )


def _newest_before(folder: Path) -> int:
    """The checkpoint before the last of the first run."""
    history = (folder / "checkpoints" / JOB / "history.jsonl").read_text(encoding="utf-8")
    entries = [json.loads(line) for line in history.splitlines()]
    stops = [n for n, entry in enumerate(entries) if entry["kind"] == "stop"]
    return int(entries[stops[0] - 1]["checkpoint_id"])
