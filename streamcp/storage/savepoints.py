"""Savepoints: copies of complete checkpoints that belong to the user (rule P4).

    <target>/<job>-<id>/data              every section, one after another
    <target>/<job>-<id>/_metadata         the manifest, written last

Invariants: a directory is a savepoint exactly if it has a `_metadata`, which gets this name, in
one atomic step, when everything is durable. Nothing in it refers to a file elsewhere, so that it
may be moved and copied. Only complete checkpoints are copied, so a savepoint never holds what its
job did not go on from. Nothing here knows the completion log, attempts or retention.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Protocol

from streamcp.checkpoint.snapshot import Acknowledgement, Manifest, SectionHandle
from streamcp.durable_files import LOCAL_FILES, DurableFiles
from streamcp.errors import CheckpointDamaged, StorageError
from streamcp.storage import format, layout
from streamcp.storage.reading import problem_of, read_frames, sizes_in


class SectionReader(Protocol):
    """Where the sections of a checkpoint are read."""

    def read_section(self, handle: SectionHandle) -> list[bytes]:
        """Read a section's frames; raises CheckpointDamaged naming the file."""
        ...


# --- writing ------------------------------------------------------------------------------------


def write_savepoint(
    source: SectionReader,
    manifest: Manifest,
    number: int,
    target: Path,
    *,
    files: DurableFiles = LOCAL_FILES,
) -> Path:
    """Copy a complete checkpoint into a new directory in `target`; return its path.

    Every section is checked while it is copied. `target` is made if need be; nothing in it is
    ever replaced: a name that is taken gets a number. `number` is that of the completion in the
    job's log. Raises StorageError, or CheckpointDamaged if the checkpoint is; then nothing stays
    behind, so far as it can be removed."""
    files.make_directories(target)
    path = _claim(files, target, manifest)
    try:
        copy = _moved(manifest)
        files.write_file(path / layout.SAVEPOINT_DATA, _chunks(source, manifest))
        draft = path / layout.METADATA_DRAFT
        files.write_file(draft, [format.encode_manifest(copy, number, "savepoint")])
        files.sync_directory(path)
        files.sync_directory(target)
        files.rename(draft, path / layout.METADATA)
    except BaseException:
        with contextlib.suppress(StorageError):
            _remove(files, path)
        raise
    return path


def _claim(files: DurableFiles, target: Path, manifest: Manifest) -> Path:
    """Make a directory that was not there."""
    for copy in count(1):
        name = layout.savepoint_directory(manifest.job, manifest.checkpoint_id, copy)
        if files.make_new_directory(target / name):
            break
    return target / name


def _chunks(source: SectionReader, manifest: Manifest) -> Iterator[bytes]:
    yield format.DATA_MAGIC
    for handle in _handles(manifest.acknowledgements):
        yield from source.read_section(handle)


def _handles(acknowledgements: Sequence[Acknowledgement]) -> Iterator[SectionHandle]:
    for acknowledgement in acknowledgements:
        yield from acknowledgement.sections


def _moved(manifest: Manifest) -> Manifest:
    """Say where everything lies in the copy, in the order of `_chunks`."""
    offset = len(format.DATA_MAGIC)
    acknowledgements = []
    for acknowledgement in manifest.acknowledgements:
        sections = []
        for handle in acknowledgement.sections:
            sections.append(replace(handle, file=layout.SAVEPOINT_DATA, offset=offset))
            offset += handle.size
        acknowledgements.append(replace(acknowledgement, sections=tuple(sections)))
    return replace(manifest, acknowledgements=tuple(acknowledgements))


# --- reading ------------------------------------------------------------------------------------


class StoredSavepoint:
    """A savepoint as it lies in its directory; nothing is read before it is asked for."""

    def __init__(self, path: Path, *, files: DurableFiles = LOCAL_FILES) -> None:
        """Read from the directory `path`."""
        self.path = path
        self._files = files

    def exists(self) -> bool:
        """Tell whether there is a savepoint, whole or damaged."""
        return layout.METADATA in self._names() and self._has_only_its_files()

    def is_unfinished(self) -> bool:
        """Tell whether there is what a crash left of a savepoint that was being written."""
        names = self._names()
        if not names:  # an empty directory is one if it is called so
            return layout.may_be_savepoint(self.path.name) and self._files.is_directory(self.path)
        return layout.METADATA not in names and self._has_only_its_files()

    def _names(self) -> list[str]:
        is_directory = self._files.is_directory(self.path)
        return self._files.list_directory(self.path) if is_directory else []

    def _has_only_its_files(self) -> bool:
        return layout.SAVEPOINT_FILES.issuperset(self._names())

    def load_manifest(self) -> Manifest:
        """Read and validate the manifest.

        Raises StorageError if there is no savepoint, or one that was never finished, and
        CheckpointDamaged if it was damaged later."""
        path = self.path / layout.METADATA
        raw = self._files.read_file(path) if self._names() else None
        document = None if raw is None else format.unseal(raw, str(path))
        if document is None or document.kind != "savepoint":
            raise StorageError(self._what_instead())
        return format.decode_manifest(document, "savepoint")

    def _what_instead(self) -> str:
        if self.is_unfinished():
            return (
                f"{self.path} was never finished: the job ended while it was written. Use another "
                f"savepoint; remove this one with: streamcp savepoints delete {self.path}"
            )
        return (
            f"{self.path} is no savepoint: name a directory that a savepoint made, "
            "such as ./savepoints/words-12; streamcp savepoints list DIR shows those in DIR"
        )

    def read_section(self, handle: SectionHandle) -> list[bytes]:
        """Read a section's frames; raises CheckpointDamaged naming the file."""
        if handle.file != layout.SAVEPOINT_DATA:
            raise CheckpointDamaged(
                f"{self.path / layout.METADATA} is damaged: it refers to {handle.file!r}, which "
                "lies outside of the savepoint"
            )
        return read_frames(self._files, self.path / handle.file, handle)

    def verify(self) -> list[str]:
        """Check every file; return one sentence per damaged one."""
        try:
            manifest = self.load_manifest()
        except StorageError as error:
            return [str(error)]
        handles = _handles(manifest.acknowledgements)
        found = [s for handle in handles for s in problem_of(self.read_section, handle)]
        return list(dict.fromkeys(found))

    def file_sizes(self) -> dict[str, int]:
        """Tell the size in bytes of every file, by name."""
        return sizes_in(self._files, self.path)

    def delete(self) -> None:
        """Delete it, whether it is whole, damaged or was never finished.

        Raises StorageError if it is no savepoint (then nothing is touched), or if a file cannot be
        removed (then it is none any more: its manifest goes first)."""
        if not self.exists() and not self.is_unfinished():
            raise StorageError(
                f"{self.path} is no savepoint and was left alone: name a directory that a "
                "savepoint made"
            )
        _remove(self._files, self.path)


def find_savepoints(directory: Path) -> list[StoredSavepoint]:
    """Find the savepoints in `directory`, sorted by name; those that were never finished too.

    Raises StorageError if there is no such directory."""
    if not LOCAL_FILES.is_directory(directory):
        raise StorageError(f"{directory} is not a directory: name one that savepoints go to")
    found = [StoredSavepoint(directory / name) for name in LOCAL_FILES.list_directory(directory)]
    return [one for one in found if one.exists() or one.is_unfinished()]


def _remove(files: DurableFiles, path: Path) -> None:
    """The manifest goes first, durably: without it there is no savepoint, with it a damaged one."""
    if files.exists(path / layout.METADATA):
        files.remove_file(path / layout.METADATA)
        files.sync_directory(path)
    for name in (layout.METADATA_DRAFT, layout.SAVEPOINT_DATA):
        files.remove_file(path / name)
    files.remove_directory(path)
    files.sync_directory(path.parent)
