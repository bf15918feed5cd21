"""What a simulated run keeps on its disk: checkpoints, and the output of file sinks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from streamcp.clock import Clock
from streamcp.storage.local import LocalStorage
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.simulation.disk_process import DiskProcess

_CHECKPOINTS = Path("/checkpoints")
_OUTPUT = Path("/output")
_ENOUGH = 1 << 40


class Files:
    """The files on one disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk

    def storage(self, job: str, clock: Clock, process: DiskProcess) -> LocalStorage:
        """Open the checkpoints of a job for a process."""
        return LocalStorage(_CHECKPOINTS, job=job, clock=clock, files=process.files)

    def folder(self, sink: str) -> Path:
        """Where a file sink writes to."""
        return _OUTPUT / sink

    def limit(self, room: int | None) -> None:
        """Leave room for so many bytes from now on; None for any number."""
        used = 0.0
        if room is not None:
            self.disk.capacity = _ENOUGH
            used = _ENOUGH - self.disk.tree.room()
        self.disk.capacity = None if room is None else int(used) + room

    def crashed(self, *, power_fails: bool) -> Files:
        """The files as the next start finds them."""
        return Files(self.disk.crash(power_fails=power_fails))

    def rows(self, sink: str) -> Iterator[Any]:
        """The committed lines of a file sink."""
        self.disk.plan()  # faults of the life that has ended are none of its reader's
        files = self.disk.process("reader").files
        for name in files.list_directory(self.folder(sink)):
            if name.endswith(".jsonl") and not name.startswith("."):
                content = files.read_file(self.folder(sink) / name) or b""
                yield from map(orjson.loads, content.splitlines())
