"""What the simulator itself reads of a simulated disk meets no faults, and is not counted."""

from __future__ import annotations

import random

from streamcp.testing.simulation.branches import Branch, existing
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.simulation.disk_faults import DiskFault
from streamcp.testing.simulation.files import Files


def test_looking_at_the_disk_of_a_life_meets_none_of_its_faults() -> None:
    disk = SimulatedDisk(random.Random(1))
    files = Files(disk)
    disk.process().files.make_directories(Branch().directory / "random" / "log")
    disk.process().files.make_directories(
        existing_directory := Branch().directory.parent / "savepoints"
    )
    operations = disk.operations
    disk.plan(*(DiskFault(name, 1, times=99) for name in ("stat", "open", "list")))
    disk.before = lambda operation: (_ for _ in ()).throw(AssertionError(operation))
    assert Branch().log(files, "random").completed == []
    assert existing(files) == []
    assert str(existing_directory) in disk.paths()
    assert disk.operations == operations
