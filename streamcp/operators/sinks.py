"""The sink contract: a coroutine, or an object with one to four methods.

- only `write(records)`: at least once. If it is a plain function, it is called inline, in the task
  of the step before it, like the function of any other step.
- `write(records, transaction)`, `prepare`, `commit` and `abort`: exactly once, written directly.
- the same without `abort`: exactly once, *staged*: the records wait in the snapshots and the
  target gets them after the checkpoint that holds them is complete (write-ahead).

A sink object may be an async context manager; it is entered before the first record and left
after the last one. It may have `async def abort_others(prefix: str, kept: Collection[str])`:
called once per sink object at each start, before any subtask of this sink writes. It removes from
the target every transaction whose id starts with `prefix` (those of this sink of this job, of all
its subtasks and attempts, and no others), except those in `kept`: ask for each with `in`, since
beside what the restored checkpoint names, it contains all of attempts that began later, which
cannot be listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from typing_extensions import TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
Token = TypeVar("Token")


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a transactional sink writes under. `id` is stable across restarts: record it in the
    target in the same step as the commit, and a second commit of it can be recognised."""

    id: str


class Sink(Protocol[T_contra]):
    """At least once: after a failure, records may be written again, none is lost."""

    async def write(self, records: Sequence[T_contra], /) -> None:
        """Write `records`; when it returns they are in the target."""
        ...


class PlainSink(Protocol[T_contra]):
    """At least once, without waiting: for targets in memory.

    Called inline, in the task of the step before it; a call that blocks stops the whole job."""

    def write(self, records: Sequence[T_contra], /) -> None:
        """Take `records`; when it returns they are in the target."""
        ...


class StagedSink(Protocol[T_contra, Token]):
    """Exactly once, by staging: called only with what a complete checkpoint holds."""

    async def write(self, records: Sequence[T_contra], transaction: Transaction, /) -> None:
        """Add `records` to `transaction`; invisible to readers until it is committed.

        A staged transaction is written in one call, and after a failure again, under the same id,
        unless its commit is known: the second call replaces what the first one wrote."""
        ...

    async def prepare(self, transaction: Transaction, /) -> Token:
        """Make `transaction` durable, so that `commit` can no longer fail for a reason of its own.

        The token is a plain value; it is kept in the snapshot and given to `commit`. What it raises
        declines the checkpoint, and the next one prepares again; TransactionLost says that this
        can never work: the job goes back to its last checkpoint, and writes again."""
        ...

    async def commit(self, transaction: Transaction, token: Token, /) -> None:
        """Make `transaction` visible. Idempotent: it is called again after a crash."""
        ...


class TransactionalSink(StagedSink[T_contra, Token], Protocol[T_contra, Token]):
    """Exactly once, written directly, for readers of committed data."""

    async def abort(self, transaction: Transaction, /) -> None:
        """Remove `transaction` from the target."""
        ...


AnySink: TypeAlias = Sink[T] | PlainSink[T] | StagedSink[T, Any]
