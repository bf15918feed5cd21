"""A disk in memory, below the real storage: it loses what was not fsynced, fails, fills, is slow.

    disk = SimulatedDisk(random.Random(7))
    storage = LocalStorage(Path("/checkpoints"), job="orders", files=disk.process("first").files)
    ...
    found = disk.crash()

Invariant: as nasty as POSIX allows, and no nastier. What was fsynced under a name that was fsynced
is there after `crash`; anything else may be there, may be torn, or may not be. `link` and
`replace` are atomic. A process that ends without a loss of power loses nothing but its locks.
Everything is drawn from one `random.Random`: same calls, same disk. Not modelled: permissions,
symbolic links, renames from one directory to another.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from streamcp.testing.simulation.disk_faults import DiskFault, FaultPlan, Operation
from streamcp.testing.simulation.disk_process import DiskProcess
from streamcp.testing.simulation.disk_tree import DiskTree


class SimulatedDisk:
    """Files and directories below `/`, which is there from the beginning.

    Hooks, all None at first: `before` is called with each operation before it takes place, and may
    do anything: crash the disk, raise OSError, let another process go on. `delay` tells how many
    seconds an operation takes; their sum is `seconds`, which the caller turns into virtual time.
    `trace` is given one line per operation with its outcome. `operations` counts them.

    One thread at a time."""

    def __init__(self, rnd: random.Random, *, capacity: int | None = None) -> None:
        """Make an empty disk for `capacity` bytes of content; None is endless."""
        self.rnd = rnd
        self.tree = DiskTree(capacity)
        self.before: Callable[[Operation], None] | None = None
        self.delay: Callable[[Operation], float] | None = None
        self.trace: Callable[[str], None] | None = None
        self.seconds = 0.0
        self.operations = 0
        self._faults = FaultPlan()
        self._processes = 0

    @property
    def capacity(self) -> int | None:
        """How many bytes of content fit; may be changed at any time."""
        return self.tree.capacity

    @capacity.setter
    def capacity(self, capacity: int | None) -> None:
        self.tree.capacity = capacity

    def process(self, name: str = "main") -> DiskProcess:
        """Let a process use the disk; each has its own open files and locks."""
        self._processes += 1
        return DiskProcess(self, name, self._processes)

    def plan(self, *faults: DiskFault) -> None:
        """Let these faults happen from now on, instead of those planned before."""
        self._faults = FaultPlan(faults)

    def crash(self, *, power_fails: bool = True) -> SimulatedDisk:
        """Return the disk as the next start finds it; this one is left as it is.

        Without `power_fails` only the processes end: everything written is there, though a later
        loss of power may still take it. On the new disk nothing is open or locked, no hook is set
        and no fault planned."""
        found = SimulatedDisk(random.Random(self.rnd.getrandbits(64)))
        found.tree = self.tree.survive(self.rnd) if power_fails else self.tree.unlocked()
        return found

    def paths(self) -> list[str]:
        """List the paths of all files and directories that programs see, sorted."""
        return sorted(path for path, _ in self.tree.walk())

    def begin(self, process: str, name: str, path: Path, detail: str) -> Operation:
        """Count an operation, and call the hooks that come before it."""
        self.operations += 1
        operation = Operation(self.operations, process, name, path, detail)
        if self.delay is not None:
            self.seconds += self.delay(operation)
        if self.before is not None:
            self.before(operation)
        return operation

    def due_fault(self, operation: Operation) -> DiskFault | None:
        """Take what is planned for an operation."""
        return self._faults.take(operation)
