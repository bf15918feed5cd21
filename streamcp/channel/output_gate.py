"""All outputs of a subtask: per edge, the partial batches and the rule that divides records.

Records are collected into batches, since a hand-over per record costs ten times as much; `flush`
hands partial batches on when the subtask is about to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from streamcp.channel.channel import JOINED_LENGTH, Channel
from streamcp.elements import Element

# Long enough that the cost of a hand-over disappears, short enough for the processor's caches.
BATCH_SIZE = 1024


class OutputEdge(Protocol):
    """One exchange, seen from one sending subtask."""

    @property
    def channels(self) -> Sequence[Channel]:
        """The channels to the receiving subtasks."""
        ...

    def push(self, values: list[Any]) -> None:
        """Divide records among the channels; `values` must not be changed afterwards."""
        ...

    @property
    def pushed(self) -> int:
        """Count the records ever handed on; one that goes to every receiver is one."""
        ...

    @property
    def partials(self) -> Sequence[list[Any]]:
        """The partial batch of each channel. They stay the same lists for the life of the edge."""
        ...

    def flush(self) -> None:
        """Hand partial batches on."""
        ...


class PartialBatches:
    """What all exchanges have in common: a partial batch per channel."""

    __slots__ = ("channels", "partials")

    def __init__(self, channels: Sequence[Channel]) -> None:
        """Send to `channels`, in the order of the receivers' indices."""
        self.channels = channels
        self.partials: tuple[list[Any], ...] = tuple([] for _ in channels)

    @property
    def pushed(self) -> int:
        """Count the records ever handed on."""
        return sum(channel.pushed for channel in self.channels)

    def flush(self) -> None:
        """Hand every partial batch on."""
        self._flush(at_least=1)

    def flush_full(self) -> None:
        """Hand on the batches that are long enough."""
        self._flush(at_least=BATCH_SIZE)

    def _flush(self, at_least: int) -> None:
        for channel, partial in zip(self.channels, self.partials, strict=True):
            if len(partial) >= at_least:
                channel.push_records(partial[:])
                partial.clear()


class ForwardEdge(PartialBatches):
    """Everything goes to the one receiver."""

    __slots__ = ()

    def __init__(self, channel: Channel) -> None:
        """Send to `channel`."""
        super().__init__((channel,))

    def push(self, values: list[Any]) -> None:
        """Send records on, in order."""
        if len(values) > JOINED_LENGTH:
            self.flush()
            self.channels[0].push_records(values)
        else:
            self.partials[0].extend(values)
            self.flush_full()


class RebalanceEdge(PartialBatches):
    """Records are dealt to the receivers in turn."""

    __slots__ = ("_turn",)

    def __init__(self, channels: Sequence[Channel], first: int = 0) -> None:
        """Begin with receiver `first`, so that several senders do not all begin with the same."""
        super().__init__(channels)
        self._turn = first % len(channels)

    def push(self, values: list[Any]) -> None:
        """Deal records."""
        count = len(self.partials)
        for receiver, partial in enumerate(self.partials):
            partial.extend(values[(receiver - self._turn) % count :: count])
        self._turn = (self._turn + len(values)) % count
        self.flush_full()


class BroadcastEdge(PartialBatches):
    """Everything goes to every receiver."""

    __slots__ = ()

    @property
    def pushed(self) -> int:
        """Count the records ever handed on, each of them once."""
        return self.channels[0].pushed

    def push(self, values: list[Any]) -> None:
        """Send records to all receivers, in order."""
        for partial in self.partials:
            partial.extend(values)
        self.flush_full()


class Routes:
    """Which receiver of an exchange the records of a key go to, for all its senders.

    `indices` is a plain dictionary that remembers what was decided: fused steps look keys up at
    full speed, and call `find` for new ones. One each would take as much memory per sender."""

    __slots__ = ("_receiver_of", "indices")

    # Bounds the memory spent on remembering; hashing again costs a microsecond per key.
    REMEMBERED = 100_000

    def __init__(self, receiver_of: Callable[[Any], int]) -> None:
        """Route by `receiver_of(key)`, the index of a receiver."""
        self.indices: dict[Any, int] = {}
        self._receiver_of = receiver_of

    def find(self, key: Any) -> int:
        """Decide where the records of a key go, and remember it."""
        if len(self.indices) >= self.REMEMBERED:
            self.indices.clear()
        index = self.indices[key] = self._receiver_of(key)
        return index


class KeyedEdge(PartialBatches):
    """Records with equal keys go to the same receiver.

    A record is put into the partial batch of the receiver that `routes` tells; `flush_full` is
    called after each slice."""

    __slots__ = ("_timed", "failed", "key", "routes")

    def __init__(
        self,
        channels: Sequence[Channel],
        key: Callable[[Any], Any],
        routes: Routes,
        failed: Callable[..., None],
        *,
        timed: bool = False,
    ) -> None:
        """Route by `key(record)`; `timed` records come with their timestamps, which the key
        function does not see.

        `failed(record, error)` raises what is to be told of a record whose key function fails or
        gives no usable key; it may get the timestamp as well."""
        super().__init__(channels)
        self._timed = timed
        self.key = key
        self.failed = failed
        self.routes = routes

    def push(self, values: list[Any]) -> None:
        """Route records."""
        key, partials, timed = self.key, self.partials, self._timed
        indices, find = self.routes.indices, self.routes.find
        for value in values:
            record = value[0] if timed else value
            try:
                k = key(record)
                index = indices.get(k)
                if index is None:
                    index = find(k)
            except Exception as error:  # whatever a user's function raises
                self.failed(record, error)
            else:
                partials[index].append(value)
        self.flush_full()


class OutputGate:
    """The outputs of one subtask.

    With `enough` room everywhere a slice is worth its cost: then the gate is `writable`."""

    __slots__ = ("_pairs", "channels", "edges", "enough")

    def __init__(self, edges: Sequence[OutputEdge]) -> None:
        """Join `edges`; no edges for a sink."""
        self.edges = tuple(edges)
        self.channels = tuple(channel for edge in edges for channel in edge.channels)
        partials = [partial for edge in edges for partial in edge.partials]
        self._pairs = tuple(zip(self.channels, partials, strict=True))
        self.enough = max((channel.room_to_go_on for channel in self.channels), default=1)

    @property
    def room(self) -> int:
        """Records that every output can still take; unbounded without outputs."""
        room = 1 << 30
        for channel, partial in self._pairs:
            here = channel.capacity - channel.occupied - len(partial)
            if here < room:
                room = here
        return room

    @property
    def writable(self) -> bool:
        """Every output has room for a slice that is worth its cost."""
        return self.room >= self.enough

    @property
    def has_partials(self) -> bool:
        """Some partial batch was not handed on yet."""
        return any(partial for _, partial in self._pairs)

    def flush(self) -> None:
        """Hand every partial batch on."""
        for edge in self.edges:
            edge.flush()

    def send(self, element: Element) -> None:
        """Send a control element on every channel, behind all records emitted so far."""
        self.flush()
        for channel in self.channels:
            channel.push(element)

    def remove_barrier(self, checkpoint_id: int) -> None:
        """Take a cancelled barrier out of every output channel."""
        for channel in self.channels:
            channel.remove_barrier(checkpoint_id)
