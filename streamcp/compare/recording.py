"""The sink that stands in for every sink of a compared job: JSON lines, exactly once.

So any job can be compared without touching its targets, and what reached them can be compared
record for record. Equal records are equal lines, in every process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import orjson

from streamcp.connectors.files.sink import JsonLines, Token
from streamcp.errors import SerializationError
from streamcp.operators.sinks import Transaction

# A sleep for every single record would be mostly the event loop's own lateness.
_SHORTEST_SLEEP = 0.005
_LARGEST_INTEGER = 2**63


class Watcher(Protocol):
    """Is told what happens at the sinks."""

    def written(self) -> None:
        """Records were written."""
        ...

    def committed(self) -> None:
        """Records that were written in this process became visible."""
        ...


class StampWatcher(Protocol):
    """Is told what becomes of the timestamps of what is written."""

    def written(self, transaction: str, stamps: Sequence[int], /) -> None:
        """Records with these timestamps were written to a transaction."""
        ...

    def committed(self, transaction: str, /) -> None:
        """A transaction became visible."""
        ...


def recording(
    folder: Path, delay: float, watcher: Watcher, stamps: StampWatcher | None = None
) -> Callable[[], RecordingSink]:
    """Give what opens the stand-in of a sink: it writes to `folder` and takes `delay` seconds per
    record. With `stamps` what it gets are pairs of record and timestamp."""
    return partial(RecordingSink, folder, delay, watcher, stamps)


class RecordingSink:
    """The sink object of one subtask."""

    def __init__(
        self, folder: Path, delay: float, watcher: Watcher, stamps: StampWatcher | None = None
    ) -> None:
        self._lines = JsonLines(folder)
        self._delay = delay
        self._watcher = watcher
        self._stamps = stamps
        self._owed = 0.0
        self._own: set[str] = set()

    async def __aenter__(self) -> RecordingSink:
        """Make the folder."""
        await self._lines.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove what no snapshot names."""
        await self._lines.__aexit__(kind, error, trace)

    async def write(self, records: Sequence[Any], transaction: Transaction, /) -> None:
        """Add `records` to `transaction`, whatever they are."""
        bare = records if self._stamps is None else [record for record, _ in records]
        await self._take_time(len(bare))
        try:
            await self._lines.write(bare, transaction)
        except SerializationError:
            await self._lines.write([json_value(record) for record in bare], transaction)
        if bare:
            self._own.add(transaction.id)
            self._watcher.written()
        if self._stamps is not None:
            self._stamps.written(transaction.id, [stamp for _, stamp in records])

    async def _take_time(self, records: int) -> None:
        self._owed += records * self._delay
        if self._owed >= _SHORTEST_SLEEP:
            owed, self._owed = self._owed, 0.0
            await asyncio.sleep(owed)

    async def prepare(self, transaction: Transaction, /) -> Token:
        """Make `transaction` durable."""
        return await self._lines.prepare(transaction)

    async def commit(self, transaction: Transaction, token: Token, /) -> None:
        """Make `transaction` visible."""
        await self._lines.commit(transaction, token)
        if transaction.id in self._own:
            self._watcher.committed()
            if self._stamps is not None:
                self._stamps.committed(transaction.id)

    async def abort(self, transaction: Transaction, /) -> None:
        """Remove `transaction`."""
        await self._lines.abort(transaction)

    async def abort_others(self, prefix: str, kept: Collection[str]) -> None:
        """Remove the transactions that no checkpoint names."""
        await self._lines.abort_others(prefix, kept)


def json_value(record: Any) -> Any:
    """Give `record` itself if it can be a line of JSON, else a description of all it holds.

    Equal data gives equal descriptions, also in another process: sets are sorted, and a data class
    or an object without a text of its own is described by its class and its attributes."""
    try:
        orjson.dumps(record, _as_json_lines, orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:
        return _described(record)
    return record


def _as_json_lines(value: Any) -> Any:
    """A record must be written alike, whichever others are written with it."""
    if not hasattr(value, "_asdict"):
        raise TypeError
    return value._asdict()


def _described(value: Any) -> Any:
    name = type(value).__name__
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < _LARGEST_INTEGER else str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return [name, [[_described(key), _described(item)] for key, item in value.items()]]
    if isinstance(value, list | tuple):
        return [name, [_described(item) for item in value]]
    if isinstance(value, set | frozenset):
        return [name, sorted((_described(item) for item in value), key=orjson.dumps)]
    if is_dataclass(value) or "__repr__" not in _own_words(type(value)):
        return [name, [[key, _described(item)] for key, item in sorted(_attributes(value))]]
    return [name, repr(value)]


def _own_words(kind: type) -> set[str]:
    return {word for base in kind.__mro__ if base is not object for word in vars(base)}


def _attributes(value: Any) -> list[tuple[str, Any]]:
    slots = [
        slot
        for kind in type(value).__mro__
        for slot in _as_names(getattr(kind, "__slots__", ()))
        if hasattr(value, slot)
    ]
    names = {*slots, *getattr(value, "__dict__", {})} - {"__dict__", "__weakref__"}
    return [(name, getattr(value, name)) for name in names]


def _as_names(slots: Any) -> Sequence[str]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
