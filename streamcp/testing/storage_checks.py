"""What every checkpoint storage must pass: `check_checkpoint_storage`.

It tests the contract from outside, by calls alone, so it knows no files. Also here: small
checkpoints to test with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from streamcp.checkpoint.journal import Answer, JournalHead
from streamcp.checkpoint.snapshot import (
    Acknowledgement,
    Manifest,
    Section,
    SectionHandle,
    SubtaskStatistics,
    TaskShape,
)
from streamcp.errors import Fenced, StorageError
from streamcp.identifiers import SubtaskId
from streamcp.storage.contract import Attempt, CheckpointStorage

MakeStorage = Callable[[str], CheckpointStorage]
"""Makes a storage of the named job; two of the same name must share their checkpoints."""

SUBTASK = SubtaskId("count", 0)
ANSWER = Answer(1, "ask", None, bytes(16), b"", None, 1_700_000_000_000, b"1")
SECTIONS = (
    Section("state", "count", (b"first group", b"", b"third group"), 7, ((0, 3, 1), (2,), (5,))),
    Section("channel", "read[0] -> count[0] (1)", (b"in flight",), 2),
    Section("rest", "read", (), 0),
)
"""The snapshot of `SUBTASK`, with an empty frame and an empty section."""


def example_manifest(
    job: str, checkpoint_id: int, attempt: int, handles: Sequence[SectionHandle] = ()
) -> Manifest:
    """Make the manifest of a small checkpoint whose only subtask wrote `handles`."""
    statistics = SubtaskStatistics(start_delay=0.25, state_bytes=22, blocked={"channel": 0.5})
    return Manifest(
        job=job,
        checkpoint_id=checkpoint_id,
        attempt=attempt,
        mode="unaligned",
        triggered_at=1_700_000_000_000,
        completed_at=1_700_000_000_250,
        max_parallelism=128,
        tasks=(TaskShape("count", 1, ("read", "count"), ("count",)),),
        acknowledgements=(
            Acknowledgement(checkpoint_id, attempt, SUBTASK, tuple(handles), statistics),
        ),
        classes=({"name": "orders.Total", "fields": ["eur"]},),
        statistics={"end_to_end": 0.25, "reason": "on request"},
    )


def complete_example(
    storage: CheckpointStorage, job: str, checkpoint_id: int, attempt: int, *, defer: bool = False
) -> Manifest:
    """Write and complete a small checkpoint; return its manifest. With `defer` its data is left to
    the completion, if the storage takes it so."""
    sections = [(SUBTASK, section) for section in SECTIONS]
    deferred = storage.defer_data(checkpoint_id, sections) if defer else None
    handles = storage.write_data(checkpoint_id, sections) if deferred is None else deferred
    manifest = example_manifest(job, checkpoint_id, attempt, handles)
    storage.complete(manifest)
    return manifest


def check_checkpoint_storage(make_storage: MakeStorage) -> None:
    """Check every promise of `CheckpointStorage`; raises AssertionError at the first broken one."""
    for check in (
        _check_what_was_written_is_read,
        _check_incomplete_is_never_seen,
        _check_attempts_and_ids_increase,
        _check_retention,
        _check_shared_files_are_kept,
        _check_second_copy_is_refused,
        _check_old_attempt_is_fenced,
        _check_journal_of_overtaken_attempt,
        _check_history,
    ):
        check(make_storage, check.__name__.removeprefix("_check_"))


def _ids(attempt: Attempt) -> list[int]:
    return [completed.checkpoint_id for completed in attempt.completed]


def _check_what_was_written_is_read(make_storage: MakeStorage, job: str) -> None:
    storage = make_storage(job)
    attempt = storage.start_attempt()
    first = attempt.next_checkpoint_id
    manifests = [
        complete_example(storage, job, first, attempt.number),
        complete_example(storage, job, first + 1, attempt.number, defer=True),
    ]
    storage.close()
    again = make_storage(job)
    assert _ids(again.start_attempt()) == [first, first + 1]
    for manifest in manifests:
        assert again.load_manifest(manifest.checkpoint_id) == manifest
        handles = manifest.acknowledgements[0].sections
        read = [tuple(again.read_section(manifest.checkpoint_id, handle)) for handle in handles]
        assert read == [section.frames for section in SECTIONS]
        assert again.verify(manifest.checkpoint_id) == []
    again.close()


def _check_incomplete_is_never_seen(make_storage: MakeStorage, job: str) -> None:
    storage = make_storage(job)
    first = storage.start_attempt().next_checkpoint_id
    for checkpoint_id in (first, first + 1):
        storage.write_data(checkpoint_id, [(SUBTASK, SECTIONS[0])])
        storage.defer_data(checkpoint_id, [(SUBTASK, SECTIONS[0])])
    storage.discard(first)
    storage.close()
    again = make_storage(job)
    assert again.start_attempt().completed == ()
    again.close()


def _check_attempts_and_ids_increase(make_storage: MakeStorage, job: str) -> None:
    number = highest = 0
    for _ in range(3):
        storage = make_storage(job)
        attempt = storage.start_attempt()
        assert attempt.number > number
        assert attempt.next_checkpoint_id > highest
        number, highest = attempt.number, attempt.next_checkpoint_id + 2
        storage.write_data(highest - 1, [(SUBTASK, SECTIONS[0])])
        storage.discard(highest - 1)
        storage.discard(highest)  # triggered, never written
        storage.close()


def _check_retention(make_storage: MakeStorage, job: str) -> None:
    storage = make_storage(job)
    attempt = storage.start_attempt()
    ids = [attempt.next_checkpoint_id + offset for offset in range(4)]
    for checkpoint_id in ids:
        complete_example(storage, job, checkpoint_id, attempt.number)
    assert storage.retain(2) == ids[:2]
    assert storage.retain(2) == []
    assert [storage.verify(checkpoint_id) for checkpoint_id in ids[2:]] == [[], []]
    assert _ids(storage.start_attempt()) == ids[2:]
    storage.close()


def _check_shared_files_are_kept(make_storage: MakeStorage, job: str) -> None:
    storage = make_storage(job)
    attempt = storage.start_attempt()
    first = attempt.next_checkpoint_id
    handles = complete_example(storage, job, first, attempt.number).acknowledgements[0].sections
    storage.complete(example_manifest(job, first + 1, attempt.number, handles))
    assert storage.retain(1) == [first]
    assert storage.verify(first + 1) == []
    try:
        storage.complete(example_manifest(job, first + 3, attempt.number, _moved(handles)))
    except StorageError:
        pass
    else:
        raise AssertionError("a checkpoint was completed that refers to one that is not complete")
    storage.close()


def _moved(handles: Sequence[SectionHandle]) -> list[SectionHandle]:
    """Say of sections that they are in files that nobody has written."""
    return [replace(handle, file="chk-99999999/data-1-1") for handle in handles]


def _check_second_copy_is_refused(make_storage: MakeStorage, job: str) -> None:
    storage = make_storage(job)
    storage.start_attempt()
    second = make_storage(job)
    try:
        second.start_attempt()
    except StorageError as error:
        refusal = str(error)
    else:
        raise AssertionError("a second copy started while the first shows life")
    assert job in refusal
    storage.close()
    second.start_attempt()
    second.close()


def _check_old_attempt_is_fenced(make_storage: MakeStorage, job: str) -> None:
    old, new = make_storage(job), make_storage(job)
    first = old.start_attempt()
    done, late = first.next_checkpoint_id, first.next_checkpoint_id + 1
    complete_example(old, job, done, first.number)
    handles = old.write_data(late, [(SUBTASK, SECTIONS[0])])
    second = new.start_attempt(take_over=True)
    assert _ids(second) == [done]
    try:
        old.complete(example_manifest(job, late, first.number, handles))
    except Fenced:
        pass
    else:
        raise AssertionError("an attempt completed a checkpoint after another one had started")
    newer = complete_example(new, job, second.next_checkpoint_id, second.number).checkpoint_id
    assert old.retain(1) == []
    old.discard(newer)
    assert [new.verify(done), new.verify(newer)] == [[], []]
    assert _ids(new.start_attempt()) == [done, newer]
    old.close()
    new.close()


def _check_journal_of_overtaken_attempt(make_storage: MakeStorage, job: str) -> None:
    before, old, new = make_storage(job), make_storage(job), make_storage(job)
    first = before.start_attempt()
    begun = before.journal()
    begun.begin(JournalHead(first.number, 0), [], [ANSWER])
    before.close()
    second = old.start_attempt()
    late = old.journal()
    third = new.start_attempt(take_over=True)
    newest = new.journal()
    assert newest.read() is not None
    newest.begin(JournalHead(third.number, 0), [], [])
    for number in range(3):  # the entry by which the newest attempt began may go
        checkpoint_id = third.next_checkpoint_id + number
        complete_example(new, job, checkpoint_id, third.number)
        new.retain(1)
    assert late.read() is None
    try:
        late.begin(JournalHead(second.number, 0), [], [])
    except Fenced:
        pass
    else:
        raise AssertionError("an attempt went on without the answers that another one had removed")
    old.close()
    new.close()


def _check_history(make_storage: MakeStorage, job: str) -> None:
    storage = make_storage(job)
    storage.start_attempt()
    entries = [{"checkpoint_id": number, "outcome": "completed"} for number in range(3)]
    for entry in entries:
        storage.append_history(entry)
    storage.close()
    assert make_storage(job).read_history() == entries
