"""Checkpoint storage and channels that fail when a test wants them to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias

from streamcp.channel.channel import Channel, NewChannel
from streamcp.elements import Batch, Element
from streamcp.errors import StorageError
from streamcp.identifiers import ChannelId
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


ChannelCall: TypeAlias = Literal["push", "take"]


def failing_channels(
    fail: Mapping[ChannelCall, Collection[int]], *, between: str = ""
) -> NewChannel:
    """Make channels for `run_job(job, channels=...)`: the n-th time (from 1) that one of them is
    given records ("push"), or records are taken from one ("take"), it raises ConnectionError for
    each n in `fail`.

    `fail={"push": {3}}` lets the third hand-over fail, and none after it: counted are the calls of
    all channels together, those of later attempts too, but only of channels whose text,
    `sender[0] -> receiver[1] (edge)`, holds `between`. A failing call has no effect, and the task
    that makes it fails, so the job restarts as `Restart` says. Barriers are not counted.

    Raises ValueError for another call than these."""
    for name in fail:
        if name not in ("push", "take"):
            raise ValueError(f"fail={{{name!r}: ...}}: a channel may fail at 'push' and 'take'")
    calls = Counter[str]()

    def before(call: ChannelCall, channel: ChannelId) -> None:
        if between not in str(channel):
            return
        calls[call] += 1
        if calls[call] in fail.get(call, ()):
            raise ConnectionError(f"{call} {calls[call]} fails, as the test wants it: {channel}")

    return watched_channels(before)


def watched_channels(before: Callable[[ChannelCall, ChannelId], None]) -> NewChannel:
    """Make channels that call `before` when they are given records, or records are taken from them:
    what it raises comes instead."""
    return lambda channel_id, capacity: _WatchedChannel(channel_id, capacity, before)


class _WatchedChannel(Channel):
    """A channel that can fail before it does anything."""

    __slots__ = ("_before", "_is_pushing")

    def __init__(
        self,
        channel_id: ChannelId,
        capacity: int,
        before: Callable[[ChannelCall, ChannelId], None],
    ) -> None:
        super().__init__(channel_id, capacity)
        self._before = before
        self._is_pushing = False  # records that become a batch of their own are pushed as one

    def push(self, element: Element) -> None:
        """Put an element at the end."""
        if type(element) is Batch and not self._is_pushing:
            self._before("push", self.id)
        super().push(element)

    def push_records(self, values: list[Any]) -> None:
        """Put records at the end."""
        self._before("push", self.id)
        self._is_pushing = True
        super().push_records(values)
        self._is_pushing = False

    def take(self) -> Element:
        """Take the first element."""
        if type(self.head()) is Batch:
            self._before("take", self.id)
        return super().take()
