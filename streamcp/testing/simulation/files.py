"""The disk of a simulated run: a directory that can be copied as a crash leaves it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from streamcp.clock import Clock
from streamcp.storage.local import LocalStorage

# In memory, where the system has it.
_MEMORY = Path("/dev/shm")


class Files:
    """A temporary directory with the job's checkpoints."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
        self._copies: list[Files] = []

    def storage(self, job: str, clock: Clock) -> LocalStorage:
        """Open the checkpoints of a job."""
        return LocalStorage(self.path / "checkpoints", job=job, clock=clock)

    def crashed(self) -> Files:
        """Copy what is there."""
        twin = Files()
        shutil.copytree(self.path, twin.path, dirs_exist_ok=True)
        return twin

    def names(self) -> list[str]:
        """Every file and directory, relative to the job's directory."""
        return sorted(
            str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file()
        )

    def remove(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.path, ignore_errors=True)
