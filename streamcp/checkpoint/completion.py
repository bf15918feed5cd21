"""What the completion of checkpoints means for a transactional sink (rule P30).

The bookkeeping of one sink subtask in one attempt: which transaction is written to, which belong
to which checkpoint, which are not known to be committed. Invariants: a record's transaction is
named by every snapshot from the first barrier after the write until its commit is known; a
transaction is to be committed only after a checkpoint that names it is complete; commits are in
the order of writing. Tokens are plain values of the sink; it neither prepares nor commits itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from streamcp.identifiers import TransactionId

NamedTransaction: TypeAlias = tuple[str, Any]
"""A transaction's identity and the token that its commit needs, as a snapshot holds them."""

# Restored transactions belong to a checkpoint that is complete: they precede every other.
_RESTORED = 0


@dataclass(frozen=True, slots=True)
class _Closed:
    """A transaction that takes no more writes; `checkpoint_id` is that of the barrier that closed
    it."""

    checkpoint_id: int
    prepared: bool = False
    token: Any = None


class TransactionLog:
    """The transactions of one sink subtask.

    The sink's task writes under `open_transaction()`; at barrier n it calls `on_barrier(n)`,
    prepares (or stages) what is returned, tells each token by `on_prepared`, and puts
    `snapshot(n)` into its snapshot. When n is complete it calls `on_complete(n)`, commits what is
    returned one after another, and tells each by `on_committed`. Failed checkpoints need no call:
    what they closed belongs to the next one.
    """

    def __init__(
        self,
        job: str,
        sink: str,
        subtask: int,
        attempt: int,
        restored: Iterable[NamedTransaction] = (),
        *,
        fork: str = "",
    ) -> None:
        """Begin an attempt; `restored` are the transactions that the restored checkpoint names,
        in order, of this and (under another parallelism) of other subtasks. `fork` is that of
        the job's own transactions (see `TransactionId`).

        They are to be committed first (`to_commit`) and keep their identities; new ones count
        from 1 under the new attempt."""
        self._identity = TransactionId(job, sink, subtask, attempt, 1, fork)
        self._used = False
        self._last_barrier = _RESTORED
        self._complete = _RESTORED
        self._closed = {
            transaction: _Closed(_RESTORED, prepared=True, token=token)
            for transaction, token in restored
        }

    def __repr__(self) -> str:
        """Show the open transaction and how many wait for their commit."""
        state = "used" if self._used else "empty"
        return f"TransactionLog(open={self._identity} {state}, uncommitted={len(self._closed)})"

    @property
    def has_uncommitted(self) -> bool:
        """Whether written records are not known to be committed: then the subtask is not finished
        (rule P7)."""
        return self._used or bool(self._closed)

    def open_transaction(self) -> str:
        """Name the transaction of a write that begins now; it counts as non-empty from now on.

        A write that fails and is repeated after a barrier is written under the new one."""
        self._used = True
        return str(self._identity)

    def on_barrier(self, checkpoint_id: int) -> tuple[str, ...]:
        """Close the open transaction, if it is non-empty: later writes belong to the next
        checkpoint. Return every closed one without a token, in order: prepare these.

        They are this one, and those of earlier barriers whose preparation failed or still runs
        (prepare one checkpoint's after another's, never the same one twice at once). Raises
        ValueError if the checkpoint is not newer than that of the last barrier."""
        if checkpoint_id <= self._last_barrier:
            raise ValueError(
                f"barrier {checkpoint_id} after barrier {self._last_barrier}: "
                "drop a barrier that is not newer than the last one"
            )
        self._last_barrier = checkpoint_id
        if self._used:
            self._closed[str(self._identity)] = _Closed(checkpoint_id)
            self._identity = replace(self._identity, number=self._identity.number + 1)
            self._used = False
        return self.to_prepare(checkpoint_id)

    def to_prepare(self, checkpoint_id: int) -> tuple[str, ...]:
        """Name the closed transactions up to this checkpoint that have no token, in order."""
        return tuple(name for name, closed in self._up_to(checkpoint_id) if not closed.prepared)

    def on_prepared(self, transaction: str, token: Any) -> None:
        """Take the token of a closed transaction; raises KeyError if it is not one."""
        self._closed[transaction] = replace(self._closed[transaction], prepared=True, token=token)

    def snapshot(self, checkpoint_id: int) -> tuple[NamedTransaction, ...]:
        """Name every transaction of this and earlier checkpoints that is not known to be
        committed, in order, with its token.

        May be called any time after the barrier. Raises ValueError naming a transaction that has
        not been prepared: the checkpoint must be declined."""
        named = self._up_to(checkpoint_id)
        for transaction, closed in named:
            if not closed.prepared:
                raise ValueError(
                    f"transaction {transaction} is not prepared: checkpoint {checkpoint_id} "
                    "cannot name it and must be declined"
                )
        return tuple((transaction, closed.token) for transaction, closed in named)

    def on_complete(self, checkpoint_id: int) -> tuple[NamedTransaction, ...]:
        """Learn that a checkpoint is complete; return what is to be committed now, in order.

        It stands for all older ones, also those whose notification was lost or that failed."""
        self._complete = max(self._complete, checkpoint_id)
        return self.to_commit()

    def to_commit(self) -> tuple[NamedTransaction, ...]:
        """List what is to be committed, in order, until `on_committed` tells that it is.

        A commit that raised is listed again: calling it again is what the sink's contract allows.
        Right after a restore these are the restored transactions."""
        return tuple(
            (transaction, closed.token) for transaction, closed in self._up_to(self._complete)
        )

    def on_committed(self, transaction: str) -> None:
        """Learn that a commit is in the target; raises KeyError if it was not to be committed."""
        del self._closed[transaction]

    def _up_to(self, checkpoint_id: int) -> list[tuple[str, _Closed]]:
        return [
            (transaction, closed)
            for transaction, closed in self._closed.items()
            if closed.checkpoint_id <= checkpoint_id
        ]
