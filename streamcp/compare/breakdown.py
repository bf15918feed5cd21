"""Where the time of single checkpoints went, subtask by subtask, as their manifests tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamcp.checkpoint.snapshot import Manifest, SubtaskStatistics
from streamcp.errors import StorageError
from streamcp.storage.reading import StoredJob, find_jobs


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A checkpoint by subtask, in the order of the steps."""

    checkpoint_id: int
    subtasks: Mapping[str, SubtaskStatistics]

    @property
    def barrier_delay(self) -> float:
        """The longest of a subtask."""
        return max((one.barrier_delay for one in self.subtasks.values()), default=0.0)

    def as_dict(self) -> dict[str, Any]:
        """Give it as plain JSON values."""
        subtasks = {name: asdict(one) for name, one in self.subtasks.items()}
        return {"checkpoint_id": self.checkpoint_id, "subtasks": subtasks}


def read_breakdowns(folder: Path) -> tuple[Breakdown, ...]:
    """Read those of the checkpoints that the run in `folder` has kept, without the last one and
    those in which a subtask had ended. Blocks."""
    try:
        jobs = find_jobs(folder / "checkpoints")
        return tuple(one for job in jobs for one in _of_job(job))
    except StorageError:  # a run that was cut off leaves whatever it leaves
        return ()


def _of_job(job: StoredJob) -> Sequence[Breakdown]:
    manifests = [job.load_manifest(one.checkpoint_id) for one in job.completed()]
    return [
        _of_manifest(one)
        for one in manifests
        if not one.final and not any(subtask.finished for subtask in one.acknowledgements)
    ]


def _of_manifest(manifest: Manifest) -> Breakdown:
    places = {task.name: place for place, task in enumerate(manifest.tasks)}
    acknowledged = sorted(
        manifest.acknowledgements, key=lambda one: (places[one.subtask.task], one.subtask.index)
    )
    return Breakdown(
        manifest.checkpoint_id, {str(one.subtask): one.statistics for one in acknowledged}
    )


def typical(breakdowns: Sequence[Breakdown], median: float) -> Breakdown | None:
    """Choose the one whose barrier delay is nearest to the median of its mode."""
    return min(breakdowns, key=lambda one: abs(one.barrier_delay - median), default=None)
