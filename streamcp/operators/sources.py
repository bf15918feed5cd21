"""The source contract: async generators that can start at a position."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Source(Generic[T_co]):
    """A generator function bound to its arguments, not yet opened.

    Made by `@streamcp.source`. The generator yields `(record, position)` or, with `batches`,
    `(records, position)`; the position is the one *after* what was yielded and is where a
    restored job opens the generator again.

    `name` names it in errors. `start` is the default of the position parameter. With `splits`,
    the function is called once per split and gets the split before the position. `types` are
    classes of records that are known before anything is read.
    """

    fn: Callable[..., AsyncIterator[tuple[Any, Any]]]
    name: str
    start: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    splits: Callable[[], Iterable[Any]] | None = None
    batches: bool = False
    types: tuple[type, ...] = ()

    def open(self, position: Any) -> AsyncIterator[tuple[Any, Any]]:
        """Open an undivided source at `position`."""
        return self.fn(position, *self.args, **self.kwargs)

    def open_split(self, split: Any, position: Any) -> AsyncIterator[tuple[Any, Any]]:
        """Open one split at `position`."""
        return self.fn(split, position, *self.args, **self.kwargs)
