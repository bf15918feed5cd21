"""What SQL says: DuckDB asked the same questions about the same events.

Nothing of streamcp has a part in it, and none of the loops. Rows are compared as bags: all of
them, as often as they occur, in any order.
"""

from __future__ import annotations

import csv
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import duckdb

from benchmarks.nexmark.model import Auction, Bid, Event, Person
from benchmarks.nexmark.query import Query, Row

_TYPES = {"int": "BIGINT", "str": "VARCHAR"}
_SHOWN = 3


class Answers(AbstractContextManager["Answers"]):
    """The events as tables person, auction and bid; close it at the end."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        by_kind: dict[type, list[Event]] = {Person: [], Auction: [], Bid: []}
        for event in events:
            by_kind[type(event)].append(event)
        with tempfile.TemporaryDirectory() as folder:
            for kind, rows in by_kind.items():
                self._load(kind, rows, Path(folder, "rows.csv"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _load(self, kind: type[Any], rows: Sequence[Event], file: Path) -> None:
        columns = {field.name: _TYPES[str(field.type)] for field in fields(kind)}
        with open(file, "w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out)
            writer.writerows([getattr(row, name) for name in columns] for row in rows)
        self._connection.execute(
            f"CREATE TABLE {kind.__name__.lower()} AS SELECT * FROM read_csv(?, columns=?, "
            "header=false, auto_detect=false, delim=',', quote='\"', escape='\"')",
            [str(file), columns],
        )

    def ask(self, sql: str) -> Counter[Row]:
        """The rows of an answer, each with how often it occurs."""
        return Counter(self._connection.execute(sql).fetchall())


def difference(query: Query[Any], results: Sequence[Any], expected: Counter[Row]) -> str:
    """Say what is missing of `expected` and what is too much; nothing if they are equal."""
    found = Counter(tuple(row) for row in query.rows(results))
    if found == expected:
        return ""
    missing, extra = expected - found, found - expected
    return "; ".join(
        f"{rows.total():,} rows {what}, such as {[*rows][:_SHOWN]}"
        for what, rows in (("missing", missing), ("too many", extra))
        if rows
    )
