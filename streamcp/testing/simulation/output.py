"""What a finished job has put out, as a reader of its targets sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamcp.testing.simulation.branches import Branch, positions
from streamcp.testing.simulation.world import Outside


@dataclass(frozen=True)
class Output:
    """The output of the job `job`, the one of a branch, among what else lies outside."""

    outside: Outside
    branch: Branch
    job: str

    @property
    def broken(self) -> str | None:
        """What no job may ask of a target, and was asked."""
        return next(iter(self.outside.target.broken), None)

    def rows(self, sink: str) -> list[Any]:
        """All that the job has committed, and all that any job wrote at least once."""
        return self.outside.rows(sink, self.branch.owns)

    def positions(self) -> dict[tuple[str, int], int]:
        """How many records of each split of each source it has read."""
        return positions(self.branch, self.outside.files, self.job)
