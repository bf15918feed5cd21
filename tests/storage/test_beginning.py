"""Attempts that begin from a savepoint: their numbers, their fork, and when they are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamcp.checkpoint.snapshot import Manifest
from streamcp.errors import RestoreRefused
from streamcp.storage.contract import Origin
from streamcp.storage.local import LocalStorage
from streamcp.testing.storage_checks import complete_example, example_manifest

JOB = "orders"
FOREIGN = example_manifest(JOB, 7012, 9)


def origin(manifest: Manifest = FOREIGN, fork: str = "f1", *, replaces: bool = False) -> Origin:
    return Origin("saved/orders-7012", manifest, fork, replaces)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path, job=JOB)


def test_ids_and_attempts_are_above_those_of_the_savepoint(storage: LocalStorage) -> None:
    attempt = storage.start_attempt(origin=origin())
    assert attempt.number > FOREIGN.attempt
    assert attempt.next_checkpoint_id > FOREIGN.checkpoint_id
    assert (attempt.completed, attempt.begun_from) == ((), "saved/orders-7012")


def test_fork_stays_until_the_next_beginning_and_older_ones_are_remembered(
    storage: LocalStorage,
) -> None:
    storage.start_attempt()
    assert storage.start_attempt(origin=origin()).fork == "f1"
    later = storage.start_attempt()
    assert (later.fork, set(later.forks)) == ("f1", {"", "f1"})
    complete_example(storage, JOB, later.next_checkpoint_id, later.number)
    again = storage.start_attempt(origin=origin(fork="f2", replaces=True))
    assert (again.fork, set(again.forks)) == ("f2", {"", "f1", "f2"})
    assert again.completed == ()


def test_checkpoints_before_the_beginning_do_not_count_and_are_retained_away(
    storage: LocalStorage,
) -> None:
    first = storage.start_attempt()
    complete_example(storage, JOB, 1, first.number)
    begun = storage.start_attempt(origin=origin(replaces=True))
    assert storage.start_attempt().completed == ()
    later = storage.start_attempt()
    complete_example(storage, JOB, later.next_checkpoint_id, later.number)
    assert storage.retain(1) == [1]
    assert [each.attempt for each in storage.start_attempt().completed] == [later.number]
    assert begun.number < later.number


def test_refused_beginning_changes_nothing(storage: LocalStorage) -> None:
    first = storage.start_attempt()
    complete_example(storage, JOB, 1, first.number)
    with pytest.raises(RestoreRefused, match=r"newest is 1: .*--from.*--fresh"):
        storage.start_attempt(origin=origin())
    after = storage.start_attempt()
    assert (after.number, after.fork, after.begun_from) == (first.number + 1, "", None)
    assert [each.checkpoint_id for each in after.completed] == [1]


@pytest.mark.parametrize("damaged", [False, True])
def test_copy_of_the_newest_checkpoint_is_accepted_also_if_that_is_damaged(
    tmp_path: Path, storage: LocalStorage, damaged: bool
) -> None:
    first = storage.start_attempt()
    manifest = complete_example(storage, JOB, 1, first.number)
    if damaged:
        for file in (tmp_path / JOB).glob("chk-*/_metadata"):
            file.write_bytes(b"?")  # the log's entry is the same file
    begun = storage.start_attempt(origin=origin(manifest))
    assert (begun.completed, begun.begun_from) == ((), "saved/orders-7012")


def test_checkpoint_of_another_job_with_the_same_numbers_is_no_copy(storage: LocalStorage) -> None:
    first = storage.start_attempt()
    manifest = complete_example(storage, JOB, 1, first.number)
    other = replace(manifest, triggered_at=manifest.triggered_at + 1)
    with pytest.raises(RestoreRefused):
        storage.start_attempt(origin=origin(other))
