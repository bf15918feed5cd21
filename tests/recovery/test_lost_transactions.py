"""A transaction that can never be prepared: the job goes back to where it was not written yet."""

from __future__ import annotations

import errno
import random
from functools import partial
from pathlib import Path

import streamcp as sc
from streamcp.connectors.files.sink import JsonLines
from streamcp.storage.local import LocalStorage
from streamcp.testing.running import run_job
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.simulation.disk_faults import DiskFault


def test_output_whose_fsync_failed_at_the_end_of_input_is_written_again() -> None:
    """Nothing more is written that could tell the sink: the final checkpoint would be declined
    for ever."""
    disk = SimulatedDisk(random.Random(0))
    disk.plan(DiskFault("fsync", 1, errno.EIO, path=".pending"))
    files, folder = disk.process().files, Path("/out")
    job = sc.Job("lost", checkpoints=sc.Checkpoints(to="/checkpoints"))
    numbers = job.source(sc.items(range(10)), name="numbers")
    numbers.sink(partial(JsonLines, folder, files=files), name="out")
    storage = LocalStorage(Path("/checkpoints"), job="lost", files=files)
    result = run_job(job, storage=storage)
    assert result is not None
    assert (result.outcome, result.attempts) == ("finished", 2)
    names = [name for name in files.list_directory(folder) if name.endswith(".jsonl")]
    lines = [line for name in names for line in (files.read_file(folder / name) or b"").split()]
    assert sorted(map(int, lines)) == list(range(10))
