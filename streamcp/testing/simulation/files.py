"""What a simulated run keeps on its disk: checkpoints, and the output of file sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from streamcp.clock import Clock
from streamcp.durable_files import DurableFiles
from streamcp.storage.local import SMALL_DATA, LocalStorage
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.simulation.disk_process import DiskProcess

_OUTPUT = Path("/output")
_COMMITTED = ".jsonl"
_ENOUGH = 1 << 40


class Files:
    """The files on one disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk

    def storage(
        self, directory: Path, job: str, clock: Clock, process: DiskProcess
    ) -> LocalStorage:
        """Open the checkpoints of a job for a process; what is deferred is drawn."""
        small_data = self.disk.rnd.choice((0, 0, 0, 0, 500, SMALL_DATA))
        return LocalStorage(
            directory, job=job, clock=clock, files=process.files, small_data=small_data
        )

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

    def looked_at(self) -> DurableFiles:
        """The files as they are now, to be read without disturbing the run."""
        return self.disk.crash(power_fails=False).process("reader").files

    def crashed(self, *, power_fails: bool) -> Files:
        """The files as the next start finds them."""
        return Files(self.disk.crash(power_fails=power_fails))

    def committed(self) -> set[str]:
        """The transactions that readers of file sinks see, without using the disk."""
        output = f"{_OUTPUT}/"
        paths = (Path(path) for path in self.disk.paths() if path.startswith(output))
        return {path.stem for path in paths if path.suffix == _COMMITTED and path.name[0] != "."}

    def rows(self, sink: str, is_own: Callable[[str], bool]) -> Iterator[Any]:
        """The lines of a file sink in its committed transactions, as far as `is_own` wants them."""
        self.disk.plan()  # faults of the life that has ended are none of its reader's
        files = self.disk.process("reader").files
        for name in files.list_directory(self.folder(sink)):
            is_committed = name.endswith(_COMMITTED) and not name.startswith(".")
            if is_committed and is_own(name.removesuffix(_COMMITTED)):
                content = files.read_file(self.folder(sink) / name) or b""
                yield from map(orjson.loads, content.splitlines())
