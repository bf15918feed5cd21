"""Checkpoint storage in a local directory.

The order that makes a checkpoint durable (rules P2, P34, P35): its data, its manifest, its
directory and the job's (which holds the name of the former) are fsynced, in no order; only then one
hard link of the manifest in the log makes the completion visible; the log's directory is fsynced
last. Small data is *deferred*: written with the manifest, so that the disk is waited for twice in
all. A large data file is written and fsynced as soon as it is known. The manifest needs no
temporary name: until the log names it, nobody reads it (decision 0034).

This file knows what is called when; the attempt's standing, names, bytes, log, lock and removal
are told elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from streamcp.checkpoint.snapshot import Manifest, Section, SectionHandle
from streamcp.clock import Clock, SystemClock
from streamcp.durable_files import LOCAL_FILES, DurableFiles
from streamcp.errors import CheckpointDamaged, Fenced, StorageError
from streamcp.identifiers import SubtaskId
from streamcp.storage import format, layout
from streamcp.storage.attempt import RunningAttempt, fenced
from streamcp.storage.beginning import FirstEntry, check_replaceable, first_entry
from streamcp.storage.contract import Attempt, CompletedCheckpoint, Origin
from streamcp.storage.history import History
from streamcp.storage.journal import JournalFiles
from streamcp.storage.lock import JobLock
from streamcp.storage.log import CompletionLog, LogView, reserved_through
from streamcp.storage.reading import StoredJob, files_of
from streamcp.storage.retention import Remover
from streamcp.storage.savepoints import write_savepoint

_log = logging.getLogger(__name__)

# Up to here a data file is deferred. Nothing else is done while it is written, and its checksums
# are computed by the event loop's thread: both take a fraction of a millisecond.
SMALL_DATA = 256 << 10


class LocalStorage:
    """The checkpoints of one job below `directory`; implements `CheckpointStorage`.

    May be called from several threads; writing of data files goes on side by side. Another
    attempt may start in the same object (after a failure) or in another one (a restart).
    """

    def __init__(
        self,
        directory: Path,
        *,
        job: str,
        clock: Clock | None = None,
        files: DurableFiles = LOCAL_FILES,
        small_data: int = SMALL_DATA,
    ) -> None:
        """Keep the checkpoints of `job` in `directory/<job>/`; nothing is touched yet. Data files
        with at most `small_data` bytes of content are deferred."""
        self._job = job
        self._small_data = small_data
        self._directory = directory / layout.job_directory(job)
        self._files = files
        self._stored = StoredJob(self._directory, files=files)
        self._log: CompletionLog = self._stored.log
        self._lock = JobLock(
            self._directory / layout.LOCK, job=job, clock=clock or SystemClock(), files=files
        )
        self._history = History(self._directory / layout.HISTORY, files=files)
        self._remover = Remover(self._directory, files)
        # Guards what the attempt knows; not held while a data file is written.
        self._guard = threading.RLock()
        self._running: RunningAttempt | None = None
        # Savepoints that are still to be copied from each checkpoint, across attempts. With a guard
        # of their own: the event loop must not wait for the disk.
        self._pins: Counter[int] = Counter()
        self._pin_guard = threading.Lock()

    # --- starting -------------------------------------------------------------------------------

    def start_attempt(self, *, take_over: bool = False, origin: Origin | None = None) -> Attempt:
        """Take the lock, append "attempt k" durably, only then read what is complete (P34).

        Ids begin behind every id that an earlier attempt can have used. What dead attempts left
        unfinished is removed. Raises StorageError naming the other copy if one is alive and
        `take_over` is false, Fenced if a newer attempt has begun meanwhile, CheckpointDamaged if a
        log entry that may be the newest completion cannot be read, and RestoreRefused if the job
        has checkpoints that `origin` must not replace."""
        with self._guard:
            self._running = None
            self._log.prepare()
            self._lock.acquire(take_over=take_over)
            try:
                running, view = self._begin(origin)
            except BaseException:
                self.close()
                raise
            self._running = running
            self._clean_up(running)
            return Attempt(
                running.number,
                running.first_id,
                tuple(view.since_begun),
                running.fork,
                tuple(view.forks),
                view.begun_from,
            )

    def _begin(self, origin: Origin | None) -> tuple[RunningAttempt, LogView]:
        entry = self._append_attempt(origin)
        view = self._log.read()
        if view.top > entry.number:
            # What the newer attempt has completed meanwhile need not be durable yet.
            raise fenced(self._job, entry.content["attempt"])
        running = RunningAttempt(
            job=self._job,
            log=self._log,
            number=entry.content["attempt"],
            first_id=entry.content["checkpoint_id"],
            top=entry.number,
            reserved=reserved_through(entry.content["checkpoint_id"]),
            # Not the view's own: what it tells the job must not change with what is retained.
            completed=list(view.completed),
            files={each.checkpoint_id: self._stored_files(each) for each in view.completed},
            fork=entry.content["fork"],
        )
        return running, view

    def _append_attempt(self, origin: Origin | None) -> FirstEntry:
        """Append "attempt k" as the highest entry of the log."""
        while True:
            view = self._log.read()
            self._refuse_unexplained(view)
            if origin is not None:
                check_replaceable(self._stored, view, origin)
            entry = first_entry(view, origin)
            made = self._log.append(entry.number, "attempt", entry.content)
            # A removed number can be taken only by who has read an outdated listing: look again.
            if made and self._log.top() == entry.number:
                return entry

    def _refuse_unexplained(self, view: LogView) -> None:
        for sentence in view.unexplained:
            raise CheckpointDamaged(
                f"{sentence}; it may have completed the newest checkpoint of job {self._job!r}: "
                "restore the file from a backup, or move it away to go on without it"
            )

    def _stored_files(self, completed: CompletedCheckpoint) -> frozenset[str] | None:
        try:
            return files_of(self._stored.load_manifest(completed.checkpoint_id))
        except StorageError:
            return None

    def _clean_up(self, running: RunningAttempt) -> None:
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
            running.check_id(checkpoint_id)
            running.reserve(checkpoint_id)
            self._lock.touch()
            file = layout.data_file(checkpoint_id, running.number, next(running.serials))
        contents = [section for _, section in sections]
        path = self._directory / file
        with self._told_if_fenced(running):
            self._make_directory(running, checkpoint_id)
            self._files.write_file(path, format.data_chunks(contents))
        handles = format.section_handles(file, contents)
        self._keep_unless_ended(running, checkpoint_id)
        return handles

    def _keep_unless_ended(self, running: RunningAttempt, checkpoint_id: int) -> None:
        with self._guard:
            if self._running is running and checkpoint_id not in running.ended:
                return
            if self._running is not None and not self._running.is_fenced():
                self._running.unremoved.add(checkpoint_id)
                self._sweep(self._running)
        raise StorageError(f"checkpoint {checkpoint_id} ended before its data was written")

    def defer_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle] | None:
        """Take a small data file, for `complete` to write; return a handle per section. None if it
        is not small. Never waits: whether another attempt has begun is found by `complete`.

        Raises StorageError if the checkpoint has ended, or belongs to an earlier attempt."""
        contents = [section for _, section in sections]
        if sum(sum(map(len, one.frames)) for one in contents) > self._small_data:
            return None
        running = self._running
        if running is None:
            raise self._closed()
        running.check_id(checkpoint_id)
        file = layout.data_file(checkpoint_id, running.number, next(running.serials))
        running.deferred.setdefault(checkpoint_id, {})[file] = contents
        return format.section_handles(file, contents)

    def complete(self, manifest: Manifest) -> None:
        """Write manifest and deferred data durably and append the completion to the log (P34).

        Raises Fenced if another attempt has appended since: nothing was completed, and from then
        on nothing is written or removed. Raises StorageError if the completion is not known to be
        durable: it must not be announced, though a later attempt may find the checkpoint. Calling
        again is allowed then. Raises StorageError too, and completes nothing, if the manifest
        refers to a file of a checkpoint that is not complete (P16)."""
        with self._guard:
            running = self._usable()
            if manifest.attempt != running.number:
                raise Fenced(
                    f"attempt {manifest.attempt} of job {self._job!r} cannot complete checkpoint "
                    f"{manifest.checkpoint_id}: attempt {running.number} has begun"
                )
            running.settle()
            if not running.is_complete(manifest.checkpoint_id):
                running.check_id(manifest.checkpoint_id)
                running.check_references(manifest)
                running.reserve(manifest.checkpoint_id)
                with self._told_if_fenced(running):
                    path = self._write_files(running, manifest)
                running.append_completion(manifest, path)
            self._log.sync()
            running.unsynced = False
            self._lock.touch()

    def _write_files(self, running: RunningAttempt, manifest: Manifest) -> Path:
        """Write what is still to be written, and make it durable with all names; return the path
        of the manifest. What an earlier try has left, not linked, is replaced."""
        n = manifest.checkpoint_id
        raw = format.encode_manifest(manifest, running.top + 1)
        path = self._log.metadata(n)
        contents: dict[Path, Iterable[bytes]] = {
            self._directory / file: format.data_chunks(sections)
            for file, sections in running.deferred.get(n, {}).items()
        }
        contents[path] = [raw]
        self._make_directory(running, n)
        with self._files.open_directory(path.parent) as own:
            self._files.write_together(contents, [own, self._log.job_directory()])
        return path

    def _make_directory(self, running: RunningAttempt, checkpoint_id: int) -> None:
        if checkpoint_id not in running.directories:
            self._files.make_directory(self._log.metadata(checkpoint_id).parent)
            running.directories.add(checkpoint_id)

    @contextlib.contextmanager
    def _told_if_fenced(self, running: RunningAttempt) -> Iterator[None]:
        """Raise Fenced, not StorageError, where a newer attempt has removed what was written."""
        try:
            yield
        except StorageError:
            with self._guard:
                if running.is_fenced():
                    running.check_not_fenced()
            raise

    def _usable(self) -> RunningAttempt:
        if self._running is None:
            raise self._closed()
        self._running.check_not_fenced()
        return self._running

    def _closed(self) -> StorageError:
        return StorageError(f"storage of job {self._job!r} is closed: call start_attempt first")

    def write_savepoint(self, checkpoint_id: int, target: Path) -> Path:
        """Copy a complete checkpoint into a new directory in `target`; return its path (P4).

        Raises StorageError, CheckpointDamaged if the checkpoint cannot be read, and Fenced if
        another attempt is known to have begun; then nothing is left in `target`."""
        with self._guard:
            if self._running is not None and self._running.is_fenced():
                self._running.check_not_fenced()
            completed = self._log.read().find(checkpoint_id)
        if completed is None:
            raise StorageError(f"checkpoint {checkpoint_id} is no longer there to be copied")
        manifest = self._stored.load_manifest(checkpoint_id)
        return write_savepoint(self._stored, manifest, completed.number, target, files=self._files)

    def pin(self, checkpoint_id: int) -> None:
        """Keep a checkpoint from retention until it is unpinned as often; never waits."""
        with self._pin_guard:
            self._pins[checkpoint_id] += 1

    def unpin(self, checkpoint_id: int) -> None:
        """Let retention have a checkpoint again; never waits."""
        with self._pin_guard:
            self._pins[checkpoint_id] -= 1

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
            running.deferred.pop(checkpoint_id, None)
            running.directories.discard(checkpoint_id)
            running.unremoved.add(checkpoint_id)
            try:
                if not running.is_fenced():
                    running.reserve(checkpoint_id)
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
                if running is None or running.fenced or running.is_fenced():
                    return []
                if running.unsynced:
                    return []
                if count == 0 and running.completed:
                    # The highest entry of the log must stay: make it another one.
                    running.append_ids(running.completed[-1].checkpoint_id)
            except (StorageError, Fenced) as error:
                _log.warning("old checkpoints were not removed yet: %s", error)
                return []
            old = running.completed[: max(0, len(running.completed) - count)]
            free = [each for each in old if self._pins[each.checkpoint_id] <= 0]
            removed = [each.checkpoint_id for each in free if self._forget(running, each)]
            self._sweep(running)
            return removed

    def _forget(self, running: RunningAttempt, old: CompletedCheckpoint) -> bool:
        """Remove a checkpoint's log entry: from then on it is not complete."""
        try:
            self._log.remove(old.number)
        except StorageError as error:
            _log.warning("checkpoint %d was not removed yet: %s", old.checkpoint_id, error)
            return False
        running.completed.remove(old)
        files = running.files.pop(old.checkpoint_id, None)
        self._remover.add(old.checkpoint_id, files and layout.names_in(old.checkpoint_id, files))
        return True

    def _sweep(self, running: RunningAttempt) -> None:
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

    def journal(self) -> JournalFiles:
        """The journal of the attempt that has begun."""
        with self._guard:
            running = self._usable()
        check_newest = partial(self._check_newest, running)
        directory = self._directory / layout.JOURNAL
        return JournalFiles(directory, running.number, check_newest=check_newest, files=self._files)

    def _check_newest(self, running: RunningAttempt) -> None:
        with self._guard:
            running.check_newest()

    def close(self) -> None:
        """Release the lock and end the attempt; reading is still possible."""
        with self._guard:
            self._running = None
            self._log.close()
            self._lock.release()
