"""Rows that are stored column by column: a few lists instead of an object per row.

A list of rows would be written object by object, and each instance among them by a call; columns
are written, and read back, as lists of plain values mostly are: in C. What is read back is a list
of tuples, as if they had been written so; sharing of instances between rows is not kept.

Both kinds are entries of a class table like any built-in type, so whoever reads values reads these,
and an older version says which one it does not know. Knows nothing of what rows mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from streamcp.serialization.shapes import Shape

INSTANCES: Final = "streamcp.columns.Instances"


class Columns:
    """Rows, by their columns: each a list, `Instances`, or a tuple of the one value that it has in
    every row. The first is one of the former."""

    __slots__ = ("columns",)

    def __init__(self, *columns: Any) -> None:
        self.columns = columns


class Instances:
    """A column of instances of the class `number`; `take` gives a list per field, of the value in
    each of them."""

    __slots__ = ("number", "take")

    def __init__(self, number: int, take: Callable[[], Iterable[list[Any]]]) -> None:
        self.number = number
        self.take = take


def _take_instances(instances: Instances) -> tuple[Any, ...]:
    return instances.number, *instances.take()


def rows_of(columns: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Put rows together. Raises ValueError for columns that were not written so."""
    lengths = {len(column) for column in columns if type(column) is list}
    if not columns or type(columns[0]) is not list or len(lengths) != 1:
        raise ValueError("columns of different lengths")
    return list(zip(*map(_column, columns), strict=False))


def _column(column: Any) -> Iterable[Any]:
    if type(column) is list:
        return column
    if type(column) is tuple and len(column) == 1:
        return itertools.repeat(column[0])
    raise ValueError("something that is no column")


def fields_of(values: Sequence[Any]) -> tuple[int, list[tuple[Any, ...]]]:
    """The class number of a column of instances, and the values of the fields of each. Raises
    ValueError for what was not written so."""
    number, *fields = values
    if not fields or any(type(one) is not list for one in fields):
        raise ValueError("instances without columns")
    return number, list(zip(*fields, strict=True))


def _refuse(values: Sequence[Any]) -> Any:
    raise NotImplementedError("only a reader knows the classes of instances")


COLUMN_SHAPES: Final = (
    Shape(Columns, "streamcp.columns.Columns", "builtin", (), lambda v: v.columns, rows_of),
    Shape(Instances, INSTANCES, "builtin", (), _take_instances, _refuse),
)
"""How they stand in a class table; those who read instances use `fields_of`."""
