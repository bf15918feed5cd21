"""A checkpoint storage that fails when a test wants it to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from streamcp.errors import StorageError
from streamcp.storage.contract import CheckpointStorage

_NEVER_RAISE = frozenset(
    {"discard", "retain", "append_history", "read_history", "close", "pin", "unpin"}
)


def failing_storage(
    storage: CheckpointStorage, fail: Mapping[str, Collection[int]], *, late: bool = False
) -> Any:
    """Wrap `storage`: the n-th call (from 1) of a method raises StorageError for each n in `fail`.

    `fail={"complete": {2}}` lets the second completion fail. With `late` the call takes effect
    first, as with an answer that is lost. The result keeps the contract of `CheckpointStorage`.

    Raises ValueError for a method that never raises, or that storage does not have."""
    for name in fail:
        if name in _NEVER_RAISE or not hasattr(storage, name):
            raise ValueError(f"fail={{{name!r}: ...}}: storage has no method {name} that may raise")
    return _FailingStorage(storage, fail, late)


class _FailingStorage:
    def __init__(
        self, storage: CheckpointStorage, fail: Mapping[str, Collection[int]], late: bool
    ) -> None:
        self._storage = storage
        self._fail = fail
        self._late = late
        self._calls = Counter[str]()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._storage, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._calls[name] += 1
            number = self._calls[name]
            fails = number in self._fail.get(name, ())
            result = None if fails and not self._late else method(*args, **kwargs)
            if fails:
                raise StorageError(f"{name}: call {number} fails, as the test wants it")
            return result

        return call
