"""Lines of history: jobs that begin from a savepoint beside, or instead of, the one that took it.

A branch is one job: its directory of checkpoints, and the transactions that make up its output. It
owns those that its savepoint stands for, and those that it writes under forks of its own
(rule P30); so each branch has to put out everything once, whatever the others write. It
decides nothing by itself: which life begins what is in the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from streamcp.checkpoint.snapshot import Manifest, SectionHandle
from streamcp.serialization.deserializer import Deserializer
from streamcp.storage.layout import job_directory
from streamcp.storage.log import LogView
from streamcp.storage.reading import StoredJob
from streamcp.storage.savepoints import SectionReader, StoredSavepoint
from streamcp.testing.simulation.files import Files

SAVEPOINTS = Path("/savepoints")
"""Where savepoints are written to."""

Beginning: TypeAlias = tuple[Literal["beside", "instead"], int]
"""How a life begins from a savepoint: in a directory of its own, while the job that was there
goes on later; or in that job's directory. The number chooses the savepoint."""

Cut: TypeAlias = tuple[str, int, int]

_CHECKPOINTS = Path("/checkpoints")
_MADE_FROM = "-"  # between the name of a branch and the number of a fork


@dataclass(frozen=True)
class Branch:
    """One line of history, by its `name`; that of the job as it was first started is empty.

    `origin` is the savepoint that it began from, `cut` the fork, attempt and id of the checkpoint
    that this is a copy of, and `inherited` the transactions which it stands for: those that were
    committed before its cut, and those that it names."""

    name: str = ""
    directory: Path = _CHECKPOINTS
    origin: Path | None = None
    cut: Cut = ("", 0, 0)
    inherited: frozenset[str] = frozenset()

    def owns(self, transaction: str) -> bool:
        """Say whether what a transaction wrote is part of the output of this job."""
        fork = transaction.partition(".")[0].partition("~")[2]
        return fork.partition(_MADE_FROM)[0] == self.name or transaction in self.inherited

    def fork(self, number: int) -> str:
        """Name a fork: one for each time that it begins from its savepoint."""
        return f"{self.name}{_MADE_FROM}{number}"

    def log(self, files: Files, job: str) -> LogView:
        """Read which checkpoints are complete."""
        directory = self.directory / job_directory(job)
        reader = files.looked_at()
        if not reader.is_directory(directory / "log"):
            return LogView()
        return StoredJob(directory, files=reader).log.read()

    def must_begin(self, view: LogView) -> bool:
        """Say whether the savepoint must be given to the next start: nothing is complete since."""
        has_begun = bool(view.forks) and view.forks[-1].startswith(f"{self.name}{_MADE_FROM}")
        return not (has_begun and view.since_begun)

    def goes_back(self, view: LogView) -> bool:
        """Say whether beginning from the savepoint gives up checkpoints: that must be asked for,
        unless the newest one is the very one that the savepoint is a copy of."""
        if not view.since_begun:
            return False
        newest = view.since_begun[-1]
        return (view.forks[-1], newest.attempt, newest.checkpoint_id) != self.cut


@dataclass
class Savepoints:
    """What a run knows about its savepoints, beyond crashes: `announced` ones must stay, and be
    whole. `begun_from` says that some life may begin from one."""

    announced: set[Path] = field(default_factory=set)
    begun_from: bool = False
    _committed: dict[Cut, frozenset[str]] = field(default_factory=dict)

    def completing(self, manifest: Manifest, committed: frozenset[str]) -> None:
        """Note which transactions were committed before a checkpoint can let any be: all of them
        lie before its cut."""
        self._committed[cut_of(manifest)] = committed

    def inherited(self, savepoint: StoredSavepoint) -> frozenset[str]:
        """The transactions that a savepoint stands for."""
        manifest = savepoint.load_manifest()
        reader = Deserializer(manifest.classes, None)
        named = [
            reader.loads(frame)[0]
            for handle in _sections(manifest, "transactions")
            for frame in savepoint.read_section(handle)
        ]
        return self._committed[cut_of(manifest)].union(named)


def cut_of(manifest: Manifest) -> Cut:
    """What tells a checkpoint apart from those of all branches."""
    return manifest.fork, manifest.attempt, manifest.checkpoint_id


def _sections(manifest: Manifest, kind: str) -> list[SectionHandle]:
    sections = [one for each in manifest.acknowledgements for one in each.sections]
    return [one for one in sections if one.kind == kind]


def begin(
    beginning: Beginning, job: Branch, number: int, files: Files, known: Savepoints
) -> Branch | None:
    """Make the branch of a life that begins from a savepoint; `number` is that of no other branch.

    None if there is no savepoint."""
    found = existing(files)
    if not found:
        return None
    how, which = beginning
    savepoint = found[which % len(found)]
    directory = job.directory if how == "instead" else Path(f"{_CHECKPOINTS}{number}")
    cut = cut_of(savepoint.load_manifest())
    return Branch(f"b{number}", directory, savepoint.path, cut, known.inherited(savepoint))


def existing(files: Files) -> list[StoredSavepoint]:
    """The savepoints on a disk, in the order of their names."""
    if str(SAVEPOINTS) not in files.disk.paths():
        return []
    reader = files.looked_at()
    found = [
        StoredSavepoint(SAVEPOINTS / name, files=reader)
        for name in reader.list_directory(SAVEPOINTS)
    ]
    return [one for one in found if one.exists()]


def positions(branch: Branch, files: Files, job: str) -> dict[tuple[str, int], int]:
    """How many records of each split of each source the newest checkpoint of a branch has read; or
    the savepoint that it began from, if that was one of a finished job: then there is none."""
    reader = files.looked_at()
    own = StoredJob(branch.directory / job_directory(job), files=reader)
    completed = own.completed()
    stored: SectionReader = own
    if completed:
        manifest = own.load_manifest(completed[-1].checkpoint_id)
    else:
        assert branch.origin is not None
        stored = savepoint = StoredSavepoint(branch.origin, files=reader)
        manifest = savepoint.load_manifest()
    values = Deserializer(manifest.classes, None)
    return {
        (handle.name, split or 0): position or 0
        for handle in _sections(manifest, "position")
        for frame in stored.read_section(handle)
        for split, position, *_ in values.loads(frame)
    }
