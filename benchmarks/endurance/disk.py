"""Writing checkpoints while the disk is full, and while writing is forbidden.

A full disk is a small file system in memory with a ballast file; it needs the right to mount.
Forbidden is a directory without permissions; since these do not bind the superuser, the job then
runs without the capability to override them. The job must go on, fail each checkpoint with a
reason, and complete again.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Child, Row, check, skipped

COMMAND = ("benchmarks.endurance.children", "short_of_disk")
BOUND = ("setpriv", "--bounding-set", "-dac_override")
SIZE = "2m"


async def measure(say: Callable[[str], None]) -> Sequence[Row]:
    """Take away the disk, see checkpoints fail, give it back, see them complete."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "full"
        folder.mkdir()
        say("disk full")
        if reason := _mount(folder):
            rows.append(skipped("disk full", reason))
        else:
            try:
                rows += await _spoiled("disk full", folder, _fill, _empty, "disk full")
            finally:
                _unmount(folder)
        folder = Path(name) / "forbidden"
        folder.mkdir()
        say("permission denied")
        rows += await _forbidden(folder)
    return rows


def _mount(folder: Path) -> str | None:
    """Mount a small file system; returns why it could not be."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"no mount command: {error}"
    return None if done.returncode == 0 else f"cannot mount here: {done.stderr.strip()}"


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], check=False)


def _fill(folder: Path) -> None:
    """Write until nothing more fits."""
    with open(folder / "ballast", "wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def _empty(folder: Path) -> None:
    (folder / "ballast").unlink()


async def _forbidden(folder: Path) -> list[Row]:
    superuser = hasattr(os, "geteuid") and os.geteuid() == 0
    prefix = BOUND if superuser else ()
    if superuser and not _works([*BOUND, "true"]):
        return [skipped("permission denied", "permissions do not bind the superuser, nor setpriv")]
    return await _spoiled("permission denied", folder, _forbid, _allow, "permission", prefix)


def _works(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _forbid(folder: Path) -> None:
    for place in _directories(folder):
        os.chmod(place, 0o555)


def _allow(folder: Path) -> None:
    for place in _directories(folder):
        os.chmod(place, 0o755)


def _directories(folder: Path) -> list[Path]:
    return [folder, *(place for place in folder.rglob("*") if place.is_dir())]


async def _spoiled(
    name: str,
    folder: Path,
    spoil: Callable[[Path], None],
    mend: Callable[[Path], None],
    reason: str,
    prefix: Sequence[str] = (),
) -> list[Row]:
    async with Child([*COMMAND, str(folder), "{}"], prefix=prefix) as child:
        await _wait_for(child, "CheckpointCompleted")
        spoil(folder)
        try:
            first = await _wait_for(child, "CheckpointFailed")
            last = first
            for _ in range(4):
                last = await _wait_for(child, "CheckpointFailed")
        finally:
            mend(folder)
        mended = await _wait_for(child, "CheckpointCompleted")
        await child.tell()
        ended = await _wait_for(child, "ended")
    return [
        check(
            f"{name}: the checkpoint fails with a reason",
            first["reason"] == "STORAGE_ERROR" and reason in first["detail"].lower(),
            f"{first['reason']}: {first['detail']}",
        ),
        check(
            f"{name}: the job goes on",
            last["taken"] > first["taken"],
            f"{last['taken'] - first['taken']} records during four more failures",
        ),
        check(
            f"{name}: a checkpoint succeeds when the cause is gone",
            mended["checkpoint_id"] > last["checkpoint_id"],
            f"checkpoint {mended['checkpoint_id']}",
        ),
        check(f"{name}: stop works afterwards", ended["outcome"] == "stopped"),
    ]


async def _wait_for(child: Child, event: str) -> dict[str, Any]:
    while True:
        line: dict[str, Any] = json.loads(await child.line(timeout=30))
        if line["event"] == event:
            return line
