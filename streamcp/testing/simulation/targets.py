"""Simulated systems that sinks write to: they outlive every crash of the job.

A target refuses what no job may ask of it: a write to a prepared transaction, the commit of one
that was never prepared. Knows nothing of the job but its calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from streamcp.operators.sinks import Transaction

T = TypeVar("T")


class ContractBroken(Exception):
    """A sink was asked for what no job may ask of it."""


class Target:
    """What was written lies in `open` until its transaction is committed; writes at least once go
    to `plain`, by sink. `broken` says which calls broke the contract."""

    def __init__(self) -> None:
        self.open: dict[str, list[Any]] = {}
        self.prepared: set[str] = set()
        self.committed: dict[str, list[Any]] = {}
        self.plain: dict[str, list[Any]] = {}
        self.broken: list[str] = []

    def check(self, kept: bool, sentence: str) -> None:
        """Note and raise `sentence` unless the contract is `kept`."""
        if not kept:
            self.broken.append(sentence)
            raise ContractBroken(sentence)

    def copy(self) -> Target:
        """A target that goes on from here on its own."""
        twin = Target()
        twin.open = {name: list(records) for name, records in self.open.items()}
        twin.prepared = set(self.prepared)
        twin.committed = {name: list(records) for name, records in self.committed.items()}
        twin.plain = {name: list(records) for name, records in self.plain.items()}
        twin.broken = self.broken
        return twin

    def records(self, sink: str, is_own: Callable[[str], bool]) -> list[Any]:
        """What a reader of one sink sees of the committed transactions that `is_own` wants, and all
        of `plain`."""
        committed = [
            record
            for name, records in self.committed.items()
            if name.split(".")[1] == sink and is_own(name)
            for record in records
        ]
        return committed + self.plain.get(sink, [])


Effect = Callable[[], Any]
Call = Callable[[str, Effect], Awaitable[Any]]
"""Makes a call of a target: takes its name, and what it does at once when it arrives there. It may
come late, fail, or fail though it took effect."""


async def make_call(name: str, effect: Effect) -> Any:
    """A call that works."""
    return effect()


class _Opened:
    """Counts what is opened and not closed: nothing of a job may outlive it (I8)."""

    def __init__(self, opened: list[str], name: str) -> None:
        self._opened, self._name = opened, name

    async def __aenter__(self) -> Any:
        """Count it."""
        self._opened.append(self._name)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take it off the list."""
        self._opened.remove(self._name)


class PlainSink(_Opened):
    """At least once."""

    def __init__(self, target: Target, name: str, call: Call, opened: list[str]) -> None:
        super().__init__(opened, name)
        self._records = target.plain.setdefault(name, [])
        self._call = call

    async def write(self, records: Sequence[Any], /) -> None:
        """Add the records."""
        added = list(records)
        await self._call("write", lambda: self._records.extend(added))


class StagedSink(_Opened):
    """Exactly once; gets each transaction in one go, and again after a failure."""

    def __init__(self, target: Target, name: str, call: Call, opened: list[str]) -> None:
        super().__init__(opened, name)
        self.target = target
        self.call = call

    async def write(self, records: Sequence[Any], transaction: Transaction, /) -> None:
        """Replace what the transaction holds."""
        replaced = list(records)
        await self.call(f"write {transaction.id}", lambda: self.put(transaction.id, replaced))

    def put(self, name: str, records: list[Any]) -> None:
        """Write: to a committed transaction without effect, as idempotent targets have it."""
        if name not in self.target.committed:
            self.target.open[name] = records

    async def prepare(self, transaction: Transaction, /) -> str:
        """Make the transaction ready."""

        def effect() -> str:
            self.target.prepared.add(transaction.id)
            return transaction.id

        token: str = await self.call(f"prepare {transaction.id}", effect)
        return token

    async def commit(self, transaction: Transaction, token: str, /) -> None:
        """Make the transaction visible, once."""
        self.target.check(token == transaction.id, f"{transaction.id} was committed with {token}")

        def effect() -> None:
            is_prepared = transaction.id in self.target.prepared
            self.target.check(is_prepared, f"{transaction.id} was committed, but not prepared")
            if transaction.id not in self.target.committed:
                self.target.committed[transaction.id] = self.target.open.pop(transaction.id, [])

        await self.call(f"commit {transaction.id}", effect)


class TransactionalSink(StagedSink):
    """Exactly once, written directly: what no checkpoint names must be removed."""

    def put(self, name: str, records: list[Any]) -> None:
        """Add the records to the transaction."""
        self.target.check(name not in self.target.prepared, f"{name} was written to when prepared")
        self.target.open.setdefault(name, []).extend(records)

    async def abort(self, transaction: Transaction, /) -> None:
        """Remove the transaction."""
        await self.call(f"abort {transaction.id}", lambda: self._remove(transaction.id))

    async def abort_others(self, prefix: str, kept: Collection[str]) -> None:
        """Remove what the restored checkpoint does not name."""

        def effect() -> None:
            for name in [*self.target.open]:
                if name.startswith(prefix) and name not in kept:
                    self._remove(name)

        await self.call(f"abort all but {len(kept)} of {prefix}", effect)

    def _remove(self, name: str) -> None:
        self.target.open.pop(name, None)
        if name not in self.target.committed:
            self.target.prepared.discard(name)
