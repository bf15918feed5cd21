"""Reading checkpoints without a lock, also while their job runs: for restore and for tools.

Nothing is ever changed here. The completion log says what is complete; a file that vanishes while
it is read belonged to a checkpoint that retention has just removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from streamcp.checkpoint.snapshot import Manifest, SectionHandle
from streamcp.durable_files import LOCAL_FILES, DurableFiles
from streamcp.errors import CheckpointDamaged, StorageError
from streamcp.storage import format, layout
from streamcp.storage.contract import CompletedCheckpoint
from streamcp.storage.history import History
from streamcp.storage.log import CompletionLog, LogView


class StoredJob:
    """The checkpoints of one job, as they lie in its directory."""

    def __init__(self, directory: Path, *, files: DurableFiles = LOCAL_FILES) -> None:
        """Read from `directory`, the job's own (see `find_jobs`)."""
        self.directory = directory
        self.log = CompletionLog(directory, files=files)
        self._files = files

    @property
    def name(self) -> str:
        """The job's name."""
        return layout.job_name(self.directory.name)

    def completed(self) -> list[CompletedCheckpoint]:
        """List the complete checkpoints, oldest first; damaged ones are among them.

        Raises StorageError if the log cannot be read or has a newer format."""
        return self.log.read().completed

    def load_manifest(self, checkpoint_id: int) -> Manifest:
        """Read and validate a manifest; raises CheckpointDamaged naming the file.

        The log's entry is `_metadata` under another name, or a copy of it where links were copied
        as files: either is enough."""
        return self._load(checkpoint_id, self.log.read())

    def read_section(self, handle: SectionHandle) -> list[bytes]:
        """Read a section's frames.

        Raises CheckpointDamaged if the file is missing or short or the checksum is wrong."""
        return read_frames(self._files, self._data_path(handle), handle)

    def verify(self, checkpoint_id: int) -> list[str]:
        """Check the log and every file that a checkpoint needs; return one sentence per damaged
        file. That of a file of another checkpoint names all checkpoints that need it."""
        return list(dict.fromkeys(self._problems(checkpoint_id)))

    def file_sizes(self, checkpoint_id: int) -> dict[str, int]:
        """Tell the size in bytes of every file in a checkpoint's directory, by name."""
        return sizes_in(self._files, self.directory / layout.checkpoint_directory(checkpoint_id))

    def read_history(self) -> list[dict[str, Any]]:
        """Read the figures of past checkpoints, oldest first; damaged lines are left out."""
        return History(self.directory / layout.HISTORY, files=self._files).read()

    def _load(self, checkpoint_id: int, view: LogView) -> Manifest:
        completed = view.find(checkpoint_id)
        if completed is None:
            raise CheckpointDamaged(
                f"{self.directory / layout.LOG} has no entry that completes checkpoint "
                f"{checkpoint_id}: it was removed, or never completed"
            )
        entry = self.log.path(completed.number)
        try:
            return self._load_from(entry, completed)
        except CheckpointDamaged as damage:
            with contextlib.suppress(CheckpointDamaged):
                return self._load_from(self.log.metadata(checkpoint_id), completed)
            raise damage from None

    def _load_from(self, path: Path, completed: CompletedCheckpoint) -> Manifest:
        raw = self._files.read_file(path)
        if raw is None:
            raise CheckpointDamaged(f"{path} is missing")
        document = format.unseal(raw, str(path))
        manifest = format.decode_manifest(document)
        if (document.number, manifest.checkpoint_id) != (
            completed.number,
            completed.checkpoint_id,
        ):
            raise CheckpointDamaged(f"{path} is damaged: it belongs to another checkpoint")
        return manifest

    def _data_path(self, handle: SectionHandle) -> Path:
        if not layout.is_data_file(handle.file):
            raise CheckpointDamaged(f"{handle.file!r} is not the name of a data file")
        return self.directory / handle.file

    def _problems(self, checkpoint_id: int) -> Iterator[str]:
        try:
            view = self.log.read()
            yield from view.damaged.values()
            manifest = self._load(checkpoint_id, view)
        except StorageError as error:
            yield str(error)
            return
        if manifest.attempt not in view.attempts and not view.damaged:
            yield (
                f"{self.directory / layout.LOG} is damaged: the entry that begins attempt "
                f"{manifest.attempt} is missing"
            )
        completed = view.find(checkpoint_id)
        if completed is not None:
            yield from self._metadata_problems(completed)
        for acknowledgement in manifest.acknowledgements:
            for handle in acknowledgement.sections:
                for sentence in problem_of(self.read_section, handle):
                    yield sentence + self._needed_by(handle, manifest, view)

    def _needed_by(self, handle: SectionHandle, manifest: Manifest, view: LogView) -> str:
        """Name all checkpoints that a damaged file takes with it, if there is another one."""
        needing = [
            one.checkpoint_id for one in view.completed if handle.file in self._files_of(one, view)
        ]
        if needing == [manifest.checkpoint_id]:
            return ""
        return f" (needed by checkpoint {', '.join(map(str, needing))})"

    def _files_of(self, completed: CompletedCheckpoint, view: LogView) -> frozenset[str]:
        try:
            return files_of(self._load(completed.checkpoint_id, view))
        except StorageError:
            return frozenset()

    def _metadata_problems(self, completed: CompletedCheckpoint) -> Iterator[str]:
        metadata = self.log.metadata(completed.checkpoint_id)
        for sentence in problem_of(self._load_from, metadata, completed):
            yield f"{sentence} ({self.log.path(completed.number)} holds the same manifest)"


def files_of(manifest: Manifest) -> frozenset[str]:
    """Name the data files that a manifest refers to."""
    return frozenset(
        handle.file
        for acknowledgement in manifest.acknowledgements
        for handle in acknowledgement.sections
    )


def referenced_sizes(manifest: Manifest) -> dict[str, int]:
    """Tell how many bytes a checkpoint needs of each data file of another one."""
    sizes: dict[str, int] = {}
    for acknowledgement in manifest.acknowledgements:
        for handle in acknowledgement.sections:
            if layout.checkpoint_of_file(handle.file) not in (None, manifest.checkpoint_id):
                sizes[handle.file] = sizes.get(handle.file, 0) + handle.size
    return sizes


def read_frames(files: DurableFiles, path: Path, handle: SectionHandle) -> list[bytes]:
    """Read a section's frames from the data file `path`; raises CheckpointDamaged naming it."""
    head = files.read_range(path, 0, len(format.DATA_MAGIC))
    content = files.read_range(path, handle.offset, handle.size)
    if head is None or content is None:
        raise CheckpointDamaged(f"{path} is missing")
    format.check_data_magic(head, str(path))
    return format.section_frames(content, handle, str(path))


def sizes_in(files: DurableFiles, directory: Path) -> dict[str, int]:
    """Tell the size in bytes of every file in a directory, by name."""
    sizes = {name: files.size(directory / name) for name in files.list_directory(directory)}
    return {name: size for name, size in sizes.items() if size is not None}


def problem_of(check: Callable[..., object], *arguments: object) -> Iterator[str]:
    """Call `check`, and yield the sentence of the StorageError that it raises, if it does."""
    try:
        check(*arguments)
    except StorageError as error:
        yield str(error)


def find_jobs(directory: Path) -> list[StoredJob]:
    """Find the jobs that have checkpoints in `directory`, or the one whose directory it is.

    Raises StorageError if there is no such directory."""
    if not directory.is_dir():
        raise StorageError(f"{directory} is not a directory: name one that checkpoints go to")
    if (directory / layout.LOG).is_dir():
        return [StoredJob(directory.resolve())]
    return [
        StoredJob(directory / name)
        for name in LOCAL_FILES.list_directory(directory)
        if (directory / name / layout.LOG).is_dir()
    ]
