"""Values that the program holds already, as a source.

The position is the index of the next value. Knows nothing of where the values go.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

from streamcp.operators.sources import Source

T = TypeVar("T")

# Long enough that the cost per batch vanishes beside that of the records, short enough that a
# batch of a slow pipeline is no large part of a snapshot.
_BATCH = 2048


def items(values: Iterable[T], /) -> Source[T]:
    """Read `values` in their order, as fast as they are taken.

    A sequence is read in place, slice by slice (a `range` is never spelled out): do not change it
    while the job runs. Anything else is used up here and kept. A restored job goes on at the
    index it had reached, so the values must be the same ones again. The data classes among them
    need not be declared."""
    held = _sliceable(values)
    types = tuple(set(map(type, held))) if isinstance(held, list | tuple) else ()
    return Source(fn=_read, name="items", start=0, args=(held,), batches=True, types=types)


async def _read(position: int, values: Sequence[T]) -> AsyncIterator[tuple[Sequence[T], int]]:
    for start in range(position, len(values), _BATCH):
        batch = values[start : start + _BATCH]
        yield batch, start + len(batch)


def _sliceable(values: Iterable[T]) -> Sequence[T]:
    if not isinstance(values, Sequence):
        return tuple(values)
    try:
        values[0:0]
    except TypeError:  # a deque is a sequence that cannot be sliced
        return tuple(values)
    return values
