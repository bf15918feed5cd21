from __future__ import annotations

from pathlib import Path

import pytest

from streamcp.errors import CheckpointDamaged, StorageError
from streamcp.storage.contract import CheckpointStorage, Origin
from streamcp.testing.memory import Memory, MemoryStorage
from streamcp.testing.storage_checks import (
    SECTIONS,
    SUBTASK,
    check_checkpoint_storage,
    complete_example,
    example_manifest,
)


def test_memory_keeps_the_contract_of_storage() -> None:
    memories: dict[str, Memory] = {}

    def make(job: str) -> CheckpointStorage:
        return MemoryStorage(memories.setdefault(job, Memory()), job)

    check_checkpoint_storage(make)


def test_crash_leaves_what_was_complete_and_gets_nothing_that_comes_later() -> None:
    memory = Memory()
    storage = MemoryStorage(memory, "job")
    attempt = storage.start_attempt()
    done = complete_example(storage, "job", attempt.next_checkpoint_id, attempt.number)
    crashed = memory.crashed()
    complete_example(storage, "job", done.checkpoint_id + 1, attempt.number)
    found = MemoryStorage(crashed, "job").start_attempt()
    assert [one.checkpoint_id for one in found.completed] == [done.checkpoint_id]
    assert found.next_checkpoint_id > done.checkpoint_id + 1


def test_discarded_and_old_checkpoints_leave_no_files() -> None:
    memory = Memory()
    storage = MemoryStorage(memory, "job")
    first = storage.start_attempt().next_checkpoint_id
    storage.write_data(first, [(SUBTASK, SECTIONS[0])])
    storage.discard(first)
    assert memory.files == {}
    for number in (1, 2):
        complete_example(storage, "job", first + number, 1)
    storage.pin(first + 1)
    assert storage.retain(1) == []
    storage.unpin(first + 1)
    assert storage.retain(1) == [first + 1]
    assert len(memory.files) == 1


def test_files_that_a_later_checkpoint_needs_stay_until_it_goes() -> None:
    memory = Memory()
    storage = MemoryStorage(memory, "job")
    first = storage.start_attempt().next_checkpoint_id
    shared = complete_example(storage, "job", first, 1).acknowledgements[0].sections
    storage.complete(example_manifest("job", first + 1, 1, shared))
    storage.retain(1)
    assert len(memory.files) == 1
    complete_example(storage, "job", first + 2, 1)
    storage.retain(1)
    assert len(memory.files) == 1
    assert storage.verify(first + 2) == []
    with pytest.raises(CheckpointDamaged, match="no checkpoint"):
        storage.load_manifest(first)


def test_memory_has_no_savepoints() -> None:
    storage = MemoryStorage(Memory(), "job")
    manifest = example_manifest("job", 1, 1)
    with pytest.raises(StorageError, match="no savepoints in memory"):
        storage.start_attempt(origin=Origin("/path", manifest, "fork"))
    with pytest.raises(StorageError, match="no savepoint can be written from memory"):
        storage.write_savepoint(1, Path("/path"))
