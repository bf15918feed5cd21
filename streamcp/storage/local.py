"""Checkpoint storage in a local directory.

The order that makes a checkpoint durable (rules P2, P34, P35): each data file is written under its
own name and fsynced; then the manifest; then the checkpoint's directory and the job's (which holds
the name of the former: merged into completion, since nothing depends on it before); then one hard
link of the manifest in the log makes the completion visible; the log's directory is fsynced last.
A small checkpoint costs one data fsync, one manifest fsync and three of directories. The manifest
needs no temporary name: until the log names it, nobody reads it.

An answer of the file system that leaves open whether the link was made is settled by reading that
number before anything else is appended or removed. So a checkpoint whose completion was reported
as failed may turn out complete; that is safe, since nothing was committed for it and the next one
contains it, and it is why `discard` looks at the log first.

This file knows the running attempt; names, bytes, log, lock and removal are told elsewhere.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamcp import durable_files
from streamcp.checkpoint.snapshot import Manifest, Section, SectionHandle
from streamcp.clock import Clock, SystemClock
from streamcp.errors import CheckpointDamaged, Fenced, StorageError
from streamcp.identifiers import SubtaskId
from streamcp.storage import format, layout
from streamcp.storage.contract import Attempt, CompletedCheckpoint
from streamcp.storage.history import History
from streamcp.storage.lock import JobLock
from streamcp.storage.log import CompletionLog, LogView, reserved_through
from streamcp.storage.reading import StoredJob
from streamcp.storage.retention import Remover

_log = logging.getLogger(__name__)

# How many ids before the end of the reserved ones more are reserved: the checkpoints that may run
# or fail before anything is written again.
_ID_MARGIN = 250


@dataclass(slots=True)
class _Running:
    """What the running attempt knows.

    `top` is the last log number it knows, `doubtful` that an append at the next one was left
    unanswered, `unsynced` that the newest completion is visible but perhaps not durable. `files`
    holds the data files of complete checkpoints, None for an unreadable manifest. `ended` are the
    discarded checkpoints, `unremoved` those of which it is still to be told whether they may go.
    """

    number: int
    first_id: int
    top: int
    reserved: int
    completed: list[CompletedCheckpoint]
    files: dict[int, frozenset[str] | None]
    ended: set[int] = field(default_factory=set)
    unremoved: set[int] = field(default_factory=set)
    serials: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    fenced: bool = False
    doubtful: bool = False
    unsynced: bool = False

    def is_complete(self, checkpoint_id: int) -> bool:
        return any(each.checkpoint_id == checkpoint_id for each in self.completed)

    def adopt(self, manifest: Manifest) -> None:
        """Count the checkpoint whose completion is the next entry of the log."""
        self.top += 1
        completed = CompletedCheckpoint(self.top, manifest.checkpoint_id, manifest.attempt)
        self.completed.append(completed)
        self.files[manifest.checkpoint_id] = _files_of(manifest)
        self.reserved = max(self.reserved, reserved_through(manifest.checkpoint_id))
        self.unsynced = True

    def referenced(self) -> frozenset[str] | None:
        """Name every data file of a complete checkpoint; None if one cannot tell."""
        known = [files for files in self.files.values() if files is not None]
        return frozenset().union(*known) if len(known) == len(self.files) else None


def _files_of(manifest: Manifest) -> frozenset[str]:
    return frozenset(
        handle.file
        for acknowledgement in manifest.acknowledgements
        for handle in acknowledgement.sections
    )


class LocalStorage:
    """The checkpoints of one job below `directory`; implements `CheckpointStorage`.

    May be called from several threads; writing of data files goes on side by side. Another
    attempt may start in the same object (after a failure) or in another one (a restart).
    """

    def __init__(self, directory: Path, *, job: str, clock: Clock | None = None) -> None:
        """Keep the checkpoints of `job` in `directory/<job>/`; nothing is touched yet."""
        self._job = job
        self._directory = directory / layout.job_directory(job)
        self._stored = StoredJob(self._directory)
        self._log: CompletionLog = self._stored.log
        self._lock = JobLock(self._directory / layout.LOCK, job=job, clock=clock or SystemClock())
        self._history = History(self._directory / layout.HISTORY)
        self._remover = Remover(self._directory)
        # Guards what the attempt knows; not held while a data file is written.
        self._guard = threading.RLock()
        self._running: _Running | None = None

    # --- starting -------------------------------------------------------------------------------

    def start_attempt(self, *, take_over: bool = False) -> Attempt:
        """Take the lock, append "attempt k" durably, only then read what is complete (P34).

        Ids begin behind every id that an earlier attempt can have used. What dead attempts left
        unfinished is removed. Raises StorageError naming the other copy if one is alive and
        `take_over` is false, and CheckpointDamaged if a log entry that may be the newest
        completion cannot be read."""
        with self._guard:
            self._running = None
            self._log.prepare()
            self._lock.acquire(take_over=take_over)
            try:
                running = self._begin()
            except BaseException:
                self._lock.release()
                raise
            self._running = running
            self._clean_up(running)
            return Attempt(running.number, running.first_id, tuple(running.completed))

    def _begin(self) -> _Running:
        view = self._append_attempt()
        top, number, first_id = view.top + 1, view.attempt + 1, view.reserved + 1
        completed = self._log.read().completed
        return _Running(
            number=number,
            first_id=first_id,
            top=top,
            reserved=reserved_through(first_id),
            completed=completed,
            files={each.checkpoint_id: self._stored_files(each) for each in completed},
        )

    def _append_attempt(self) -> LogView:
        """Append "attempt k" as the highest entry; return what the log said before it."""
        while True:
            view = self._log.read()
            self._refuse_unexplained(view)
            made = self._log.append(
                view.top + 1, "attempt", attempt=view.attempt + 1, checkpoint_id=view.reserved + 1
            )
            # A removed number can be taken only by who has read an outdated listing: look again.
            if made and self._log.top() == view.top + 1:
                return view

    def _refuse_unexplained(self, view: LogView) -> None:
        for sentence in view.unexplained:
            raise CheckpointDamaged(
                f"{sentence}; it may have completed the newest checkpoint of job {self._job!r}: "
                "restore the file from a backup, or move it away to go on without it"
            )

    def _stored_files(self, completed: CompletedCheckpoint) -> frozenset[str] | None:
        try:
            return _files_of(self._stored.load_manifest(completed.checkpoint_id))
        except StorageError:
            return None

    def _clean_up(self, running: _Running) -> None:
        """Remove what dead attempts left. Never touches ids of an attempt that began later."""
        try:
            self._log.remove_drafts(running.top)
            for checkpoint_id in self._log.checkpoint_ids():
                if checkpoint_id < running.first_id and not running.is_complete(checkpoint_id):
                    self._remover.add(checkpoint_id)
        except StorageError as error:
            _log.warning("files of earlier attempts were not removed: %s", error)
        self._sweep(running)
        self._history.trim()

    # --- writing --------------------------------------------------------------------------------

    def write_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle]:
        """Write and fsync one data file; return a handle per section, in their order.

        Raises StorageError if it cannot be written, or if the checkpoint has ended meanwhile (then
        the file is removed), and Fenced if another attempt is known to have begun."""
        with self._guard:
            running = self._usable()
            self._check_id(running, checkpoint_id)
            self._reserve(running, checkpoint_id)
            self._lock.touch()
            file = layout.data_file(checkpoint_id, running.number, next(running.serials))
        contents = [section for _, section in sections]
        path = self._directory / file
        durable_files.make_directory(path.parent)
        durable_files.write_file(path, format.data_chunks(contents))
        handles = format.section_handles(file, contents)
        self._keep_unless_ended(running, checkpoint_id)
        return handles

    def _keep_unless_ended(self, running: _Running, checkpoint_id: int) -> None:
        with self._guard:
            if self._running is running and checkpoint_id not in running.ended:
                return
            if self._running is not None and not self._is_fenced(self._running):
                self._running.unremoved.add(checkpoint_id)
                self._sweep(self._running)
        raise StorageError(f"checkpoint {checkpoint_id} ended before its data was written")

    def _check_id(self, running: _Running, checkpoint_id: int) -> None:
        if checkpoint_id < running.first_id:
            raise StorageError(f"checkpoint {checkpoint_id} belongs to an earlier attempt")
        if checkpoint_id in running.ended or running.is_complete(checkpoint_id):
            raise StorageError(f"checkpoint {checkpoint_id} has ended already")

    def complete(self, manifest: Manifest) -> None:
        """Write the manifest durably and append the completion to the log (P34).

        Raises Fenced if another attempt has appended since: nothing was completed, and from then
        on nothing is written or removed. Raises StorageError if the completion is not known to be
        durable: it must not be announced, though a later attempt may find the checkpoint. Calling
        again is allowed then."""
        with self._guard:
            running = self._usable()
            if manifest.attempt != running.number:
                raise Fenced(
                    f"attempt {manifest.attempt} of job {self._job!r} cannot complete checkpoint "
                    f"{manifest.checkpoint_id}: attempt {running.number} has begun"
                )
            self._settle(running)
            if not running.is_complete(manifest.checkpoint_id):
                self._check_id(running, manifest.checkpoint_id)
                path = self._write_manifest(running, manifest)
                self._append_completion(running, manifest, path)
            self._log.sync()
            running.unsynced = False
            self._lock.touch()

    def _write_manifest(self, running: _Running, manifest: Manifest) -> Path:
        raw = format.encode_manifest(manifest, running.top + 1)
        path = self._log.metadata(manifest.checkpoint_id)
        durable_files.make_directory(path.parent)
        durable_files.remove_file(path)  # of an earlier try that was not linked
        durable_files.write_file(path, [raw])
        durable_files.sync_directory(path.parent)
        durable_files.sync_directory(self._directory)
        return path

    def _append_completion(self, running: _Running, manifest: Manifest, path: Path) -> None:
        running.doubtful = True
        if not self._log.link(running.top + 1, path):
            raise self._fence(running)
        running.doubtful = False
        running.adopt(manifest)

    # --- the attempt's standing -----------------------------------------------------------------

    def _usable(self) -> _Running:
        if self._running is None:
            raise StorageError(f"storage of job {self._job!r} is closed: call start_attempt first")
        if self._running.fenced:
            raise self._fence(self._running)
        return self._running

    def _fence(self, running: _Running) -> Fenced:
        running.fenced = True
        return Fenced(
            f"another copy of job {self._job!r} has started since attempt {running.number} did: "
            "this one must stop"
        )

    def _is_fenced(self, running: _Running) -> bool:
        """Look whether another attempt has begun; raises StorageError if that cannot be told."""
        self._settle(running)
        if durable_files.exists(self._log.path(running.top + 1)):
            running.fenced = True
        return running.fenced

    def _settle(self, running: _Running) -> None:
        """Find out what became of an append that was left unanswered, by reading its number.

        Raises Fenced, or StorageError if it cannot be told yet."""
        if not running.doubtful:
            return
        path = self._log.path(running.top + 1)
        raw = durable_files.read_file(path)
        if raw is not None:
            self._adopt_own(running, raw)
        running.doubtful = False

    def _adopt_own(self, running: _Running, raw: bytes) -> None:
        document = self._log.open(running.top + 1, raw)
        if document.content.integer("attempt") != running.number:
            raise self._fence(running)
        if document.kind == "manifest":
            running.adopt(format.decode_manifest(document))
        else:
            running.top += 1

    def _reserve(self, running: _Running, checkpoint_id: int) -> None:
        """Reserve more ids in the log if completions have not done so for long (P3).

        Raises StorageError only if `checkpoint_id` itself is not reserved yet."""
        if checkpoint_id <= running.reserved - _ID_MARGIN:
            return
        try:
            self._append_ids(running, checkpoint_id)
        except StorageError as error:
            if checkpoint_id > running.reserved:
                raise
            _log.warning("checkpoint ids were not reserved yet: %s", error)

    def _append_ids(self, running: _Running, checkpoint_id: int) -> None:
        self._settle(running)
        running.doubtful = True
        made = self._log.append(
            running.top + 1, "ids", attempt=running.number, checkpoint_id=checkpoint_id
        )
        if not made:
            raise self._fence(running)
        running.doubtful = False
        running.top += 1
        running.reserved = max(running.reserved, reserved_through(checkpoint_id))

    # --- removing -------------------------------------------------------------------------------

    def discard(self, checkpoint_id: int) -> None:
        """Remove the files of a checkpoint that did not complete (P31). Never raises.

        Does nothing if the checkpoint is complete after all, or if this attempt is fenced. Data
        that is still being written is removed as soon as it is."""
        with self._guard:
            running = self._running
            if running is None or running.fenced:
                return
            running.ended.add(checkpoint_id)
            running.unremoved.add(checkpoint_id)
            try:
                if not self._is_fenced(running):
                    self._reserve(running, checkpoint_id)
                    self._sweep(running)
            except (StorageError, Fenced) as error:
                _log.warning("checkpoint %d was not removed yet: %s", checkpoint_id, error)

    def retain(self, count: int) -> list[int]:
        """Remove all but the newest `count` complete checkpoints; return the removed ids (P32).

        Never raises; what cannot be removed is tried again next time. Removes nothing while the
        newest completion is not known to be durable, nor if this attempt is fenced. A `count` of 0
        is for a job that has finished on its own (P32a)."""
        with self._guard:
            running = self._running
            try:
                if running is None or running.fenced or self._is_fenced(running):
                    return []
                if running.unsynced:
                    return []
                if count == 0 and running.completed:
                    # The highest entry of the log must stay: make it another one.
                    self._append_ids(running, running.completed[-1].checkpoint_id)
            except (StorageError, Fenced) as error:
                _log.warning("old checkpoints were not removed yet: %s", error)
                return []
            old = running.completed[: max(0, len(running.completed) - count)]
            removed = [each.checkpoint_id for each in old if self._forget(running, each)]
            self._sweep(running)
            return removed

    def _forget(self, running: _Running, old: CompletedCheckpoint) -> bool:
        """Remove a checkpoint's log entry: from then on it is not complete."""
        try:
            self._log.remove(old.number)
        except StorageError as error:
            _log.warning("checkpoint %d was not removed yet: %s", old.checkpoint_id, error)
            return False
        running.completed.remove(old)
        running.files.pop(old.checkpoint_id, None)
        self._remover.add(old.checkpoint_id)
        return True

    def _sweep(self, running: _Running) -> None:
        """Remove what may go; only while this attempt is not fenced and nothing is doubtful."""
        for checkpoint_id in running.unremoved:
            if not running.is_complete(checkpoint_id):
                self._remover.add(checkpoint_id)
        running.unremoved.clear()
        referenced = running.referenced()
        if referenced is None:
            _log.warning("nothing is removed: a manifest that may refer to files is unreadable")
            return
        self._remover.run(referenced)

    # --- reading --------------------------------------------------------------------------------

    def load_manifest(self, checkpoint_id: int) -> Manifest:
        """Read and validate a complete checkpoint's manifest; raises CheckpointDamaged."""
        return self._stored.load_manifest(checkpoint_id)

    def read_section(self, checkpoint_id: int, handle: SectionHandle) -> list[bytes]:
        """Read a section's frames; raises CheckpointDamaged naming the file."""
        return self._stored.read_section(handle)

    def verify(self, checkpoint_id: int) -> list[str]:
        """Check the log and every file; return one sentence per damaged one, naming it."""
        return self._stored.verify(checkpoint_id)

    def append_history(self, entry: Mapping[str, Any]) -> None:
        """Append one checkpoint's figures to the history. Never raises."""
        with self._guard:
            self._history.append(entry)
            if self._running is not None and not self._running.fenced:
                self._history.trim()

    def read_history(self) -> list[dict[str, Any]]:
        """Read the newest entries of the history, oldest first, without damaged lines."""
        return self._stored.read_history()

    def close(self) -> None:
        """Release the lock and end the attempt; reading is still possible."""
        with self._guard:
            self._running = None
            self._lock.release()
