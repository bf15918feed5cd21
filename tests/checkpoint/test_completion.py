"""What the completion of checkpoints means for a transactional sink (rule P30)."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamcp.checkpoint.completion import NamedTransaction, TransactionLog
from streamcp.identifiers import TransactionId, transaction_prefix


def log(attempt: int = 1, restored: tuple[NamedTransaction, ...] = ()) -> TransactionLog:
    return TransactionLog("job", "sink", 0, attempt, restored)


def name(number: int, attempt: int = 1) -> str:
    return str(TransactionId("job", "sink", 0, attempt, number))


def write_and_prepare(transactions: TransactionLog, checkpoint_id: int) -> str:
    written = transactions.open_transaction()
    transactions.on_barrier(checkpoint_id)
    transactions.on_prepared(written, f"token of {checkpoint_id}")
    return written


def test_writes_between_barriers_share_a_transaction() -> None:
    transactions = log()
    assert transactions.open_transaction() == transactions.open_transaction() == name(1)


def test_barrier_closes_the_open_transaction() -> None:
    transactions = log()
    transactions.open_transaction()
    assert transactions.on_barrier(1) == (name(1),)
    assert transactions.open_transaction() == name(2)


def test_barrier_without_writes_closes_nothing() -> None:
    transactions = log()
    assert transactions.on_barrier(1) == ()
    assert transactions.snapshot(1) == ()
    assert transactions.open_transaction() == name(1)


def test_snapshot_names_what_is_prepared_with_its_token() -> None:
    transactions = log()
    write_and_prepare(transactions, 1)
    assert transactions.snapshot(1) == ((name(1), "token of 1"),)


def test_snapshot_is_made_of_plain_values() -> None:
    transactions = log()
    write_and_prepare(transactions, 1)
    snapshot = transactions.snapshot(1)
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot


def test_snapshot_taken_late_leaves_out_what_was_closed_later() -> None:
    transactions = log()
    write_and_prepare(transactions, 1)
    write_and_prepare(transactions, 2)
    assert [transaction for transaction, _ in transactions.snapshot(1)] == [name(1)]


def test_snapshot_with_an_unprepared_transaction_is_refused() -> None:
    transactions = log()
    transactions.open_transaction()
    transactions.on_barrier(1)
    with pytest.raises(ValueError, match=r"job\.sink\.0\.1\.1 is not prepared: checkpoint 1"):
        transactions.snapshot(1)


def test_failed_preparation_is_asked_for_again_at_the_next_barrier() -> None:
    transactions = log()
    transactions.open_transaction()
    transactions.on_barrier(1)
    transactions.open_transaction()
    assert transactions.on_barrier(2) == (name(1), name(2))


def test_completion_returns_all_up_to_it_in_order() -> None:
    """Checkpoint 1 was subsumed or its notification lost: 2 stands for both."""
    transactions = log()
    write_and_prepare(transactions, 1)
    write_and_prepare(transactions, 2)
    write_and_prepare(transactions, 3)
    assert transactions.on_complete(2) == ((name(1), "token of 1"), (name(2), "token of 2"))


def test_failed_checkpoint_leaves_its_transaction_to_the_next() -> None:
    transactions = log()
    write_and_prepare(transactions, 1)  # checkpoint 1 fails
    write_and_prepare(transactions, 2)
    assert [transaction for transaction, _ in transactions.snapshot(2)] == [name(1), name(2)]
    assert transactions.on_complete(2) == transactions.snapshot(2)


def test_commit_that_failed_is_listed_again() -> None:
    """The same is tried again, nothing is skipped (faust#316)."""
    transactions = log()
    write_and_prepare(transactions, 1)
    assert transactions.on_complete(1) == transactions.to_commit() == ((name(1), "token of 1"),)
    transactions.on_committed(name(1))
    assert transactions.to_commit() == ()


def test_uncommitted_transaction_stays_in_every_snapshot() -> None:
    transactions = log()
    write_and_prepare(transactions, 1)
    transactions.on_complete(1)
    transactions.on_barrier(2)
    assert transactions.snapshot(2) == ((name(1), "token of 1"),)
    transactions.on_committed(name(1))
    assert transactions.snapshot(2) == ()


def test_late_completion_of_an_older_checkpoint_changes_nothing() -> None:
    transactions = log()
    write_and_prepare(transactions, 1)
    write_and_prepare(transactions, 2)
    transactions.on_complete(2)
    assert [transaction for transaction, _ in transactions.on_complete(1)] == [name(1), name(2)]


def test_restored_transactions_are_to_be_committed_first() -> None:
    restored = (("other.1", "x"), ("other.2", "y"))
    transactions = log(attempt=2, restored=restored)
    assert transactions.to_commit() == restored
    assert transactions.open_transaction() == name(1, attempt=2)
    assert transactions.on_barrier(8) == (name(1, attempt=2),)
    transactions.on_prepared(name(1, attempt=2), "z")
    assert transactions.snapshot(8) == (*restored, (name(1, attempt=2), "z"))


def test_uncommitted_output_keeps_the_subtask_unfinished() -> None:
    transactions = log()
    assert not transactions.has_uncommitted
    write_and_prepare(transactions, 1)
    assert transactions.has_uncommitted
    transactions.on_complete(1)
    assert transactions.has_uncommitted
    transactions.on_committed(name(1))
    assert not transactions.has_uncommitted
    transactions.open_transaction()
    assert transactions.has_uncommitted


@pytest.mark.parametrize("again", [3, 2])
def test_barrier_that_is_not_newer_is_refused(again: int) -> None:
    transactions = log()
    transactions.on_barrier(3)
    with pytest.raises(ValueError, match=f"barrier {again} after barrier 3"):
        transactions.on_barrier(again)


def test_unknown_transaction_is_an_error() -> None:
    with pytest.raises(KeyError):
        log().on_prepared("unknown", None)
    with pytest.raises(KeyError):
        log().on_committed("unknown")


def test_repr_tells_what_waits() -> None:
    transactions = log()
    write_and_prepare(transactions, 1)
    assert repr(transactions) == "TransactionLog(open=job.sink.0.1.2 empty, uncommitted=1)"


class SinkMachine(RuleBasedStateMachine):
    """A sink, its target and a source of numbered records, through writes, barriers, completions,
    failures, lost notifications, crashes and restores: each record is committed exactly once and
    in order."""

    @initialize()
    def begin(self) -> None:
        self.attempt = 1
        self.log = log(self.attempt)
        self.next_record = 0  # the source's position
        self.next_checkpoint = 1
        self.staged: dict[str, list[int]] = {}  # in the target, uncommitted
        self.committed: dict[str, list[int]] = {}  # in the target, visible; by identity
        # Per checkpoint in progress: the position, and what its snapshot names (once taken).
        self.positions: dict[int, int] = {}
        self.snapshots: dict[int, tuple[NamedTransaction, ...]] = {}
        self.restorable: tuple[int, tuple[NamedTransaction, ...]] = (0, ())

    @rule(records=st.integers(1, 3))
    def write(self, records: int) -> None:
        transaction = self.log.open_transaction()
        batch = range(self.next_record, self.next_record + records)
        self.staged.setdefault(transaction, []).extend(batch)
        self.next_record += records

    @rule(prepares=st.booleans())
    def barrier(self, prepares: bool) -> None:
        """A checkpoint begins; when preparing fails it is declined."""
        checkpoint_id = self.next_checkpoint
        self.next_checkpoint += 1
        for transaction in self.log.on_barrier(checkpoint_id):
            if not prepares:
                return
            self.log.on_prepared(transaction, ("token", tuple(self.staged[transaction])))
        self.positions[checkpoint_id] = self.next_record

    @precondition(lambda self: self.positions.keys() - self.snapshots.keys())
    @rule(data=st.data())
    def take_snapshot(self, data: st.DataObject) -> None:
        """The asynchronous part: any time after the barrier."""
        waiting = sorted(self.positions.keys() - self.snapshots.keys())
        checkpoint_id = data.draw(st.sampled_from(waiting))
        snapshot = self.log.snapshot(checkpoint_id)
        self.snapshots[checkpoint_id] = pickle.loads(pickle.dumps(snapshot))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data(), notified=st.booleans(), commits=st.integers(0, 3))
    def complete(self, data: st.DataObject, notified: bool, commits: int) -> None:
        """A checkpoint completes; older ones are subsumed. The crash may come before the
        notification or in the middle of the commits."""
        checkpoint_id = data.draw(st.sampled_from(sorted(self.snapshots)))
        self.restorable = (self.positions[checkpoint_id], self.snapshots[checkpoint_id])
        for older in [one for one in self.positions if one <= checkpoint_id]:
            del self.positions[older]
            self.snapshots.pop(older, None)
        if notified:
            for transaction, token in self.log.on_complete(checkpoint_id)[:commits]:
                self.commit(transaction, token)
                self.log.on_committed(transaction)

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def fail_checkpoint(self, data: st.DataObject) -> None:
        checkpoint_id = data.draw(st.sampled_from(sorted(self.positions)))
        del self.positions[checkpoint_id]
        self.snapshots.pop(checkpoint_id, None)

    @rule(commits=st.integers(0, 3))
    def commit_what_is_left(self, commits: int) -> None:
        for transaction, token in self.log.to_commit()[:commits]:
            self.commit(transaction, token)
            self.log.on_committed(transaction)

    @rule(commits=st.integers(0, 3))
    def crash_and_restore(self, commits: int) -> None:
        """The sink may crash again before it has committed everything that was restored."""
        position, named = self.restorable
        self.attempt += 1
        self.log = log(self.attempt, named)
        self.next_record = position
        self.positions.clear()
        self.snapshots.clear()
        kept = {transaction for transaction, _ in named}
        self.staged = {one: batch for one, batch in self.staged.items() if one in kept}
        self.commit_what_is_left(commits)

    def commit(self, transaction: str, token: Any) -> None:
        """The target: an identity that it knows is a no-op."""
        if transaction not in self.committed:
            self.committed[transaction] = self.staged.pop(transaction)
            assert token == ("token", tuple(self.committed[transaction]))

    @invariant()
    def target_shows_each_record_once_in_order(self) -> None:
        if not hasattr(self, "committed"):
            return
        shown = [record for batch in self.committed.values() for record in batch]
        assert shown == list(range(len(shown)))

    def teardown(self) -> None:
        """After a last checkpoint nothing is missing."""
        if not hasattr(self, "log"):
            return
        self.barrier(prepares=True)
        last = self.next_checkpoint - 1
        assert self.log.snapshot(last) is not None
        for transaction, token in self.log.on_complete(last):
            self.commit(transaction, token)
            self.log.on_committed(transaction)
        shown = [record for batch in self.committed.values() for record in batch]
        assert shown == list(range(self.next_record))
        assert not self.log.has_uncommitted


TestSinkMachine = SinkMachine.TestCase


def test_transactions_of_a_fork_are_of_another_prefix_whatever_jobs_are_called() -> None:
    own = [str(TransactionId("job", "sink", 0, 1, 1)), transaction_prefix("job", "sink")]
    fork = [str(TransactionId("job", "sink", 0, 1, 1, "f")), transaction_prefix("job", "sink", "f")]
    assert fork[0].startswith(fork[1])
    assert not fork[0].startswith(own[1])
    assert not own[0].startswith(fork[1])
    assert not str(TransactionId("job~f", "sink", 0, 1, 1)).startswith(fork[1])
    log = TransactionLog("job", "sink", 0, 1, fork="f")
    assert log.open_transaction() == fork[0]
