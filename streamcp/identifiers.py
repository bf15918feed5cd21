"""Names of subtasks, channels and transactions: ordered, printable, stable across restarts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True, order=True)
class SubtaskId:
    """One parallel instance of a task."""

    task: str
    index: int

    def __str__(self) -> str:
        """`task[index]`."""
        return f"{self.task}[{self.index}]"


@dataclass(frozen=True, slots=True, order=True)
class ChannelId:
    """The edge between two subtasks; `edge` tells apart several edges between the same tasks."""

    sender: SubtaskId
    receiver: SubtaskId
    edge: str

    def __str__(self) -> str:
        """`sender -> receiver (edge)`."""
        return f"{self.sender} -> {self.receiver} ({self.edge})"

    @classmethod
    def parse(cls, text: str, receiver: SubtaskId) -> ChannelId:
        """Read the text of a channel that ends at `receiver`; ValueError if it is none."""
        sender, arrow, edge = text.partition(f" -> {receiver} (")
        task, bracket, index = sender.rpartition("[")
        if not (arrow and bracket and index.endswith("]") and edge.endswith(")")):
            raise ValueError(f"{text!r} names no channel that ends at {receiver}")
        return cls(SubtaskId(task, int(index[:-1])), receiver, edge[:-1])


def transaction_prefix(job: str, sink: str, fork: str = "") -> str:
    """What the texts of all transactions of one sink begin with, and those of no other sink, and
    of no other fork of the job (one that began from a savepoint)."""
    owner = f"{_quoted(job)}~{_quoted(fork)}" if fork else _quoted(job)
    return f"{owner}.{_quoted(sink)}."


@dataclass(frozen=True, slots=True, order=True)
class TransactionId:
    """The identity of a sink's transaction in the outside world (rule P30).

    `number` counts the transactions of one sink subtask within one attempt. `fork` is empty unless
    the job began from a savepoint: then the job that took it may go on with the same attempts.
    """

    job: str
    sink: str
    subtask: int
    attempt: int
    number: int
    fork: str = ""

    def __str__(self) -> str:
        """A stable text for file names and tables of the target: no two ids share one."""
        prefix = transaction_prefix(self.job, self.sink, self.fork)
        return f"{prefix}{self.subtask}.{self.attempt}.{self.number}"


class KeptTransactions(Collection[str]):
    """The transactions that a starting attempt must leave alone, as texts: those of `names`, and
    all of attempts that are not earlier than it.

    Only `names` can be listed; so ask with `in`. A copy that was taken over from may still be
    starting when the new one writes: it must not remove what it knows nothing of (rule P34)."""

    def __init__(self, names: Iterable[str], attempt: int) -> None:
        """Keep `names`, and what began with `attempt` or later."""
        self._names = frozenset(names)
        self._attempt = attempt

    def __contains__(self, text: object) -> bool:
        """Also of a text that belongs to no transaction: it is somebody else's."""
        if text in self._names:
            return True
        attempt = str(text).rsplit(".", 2)[-2:-1]
        return not attempt or not attempt[0].isdecimal() or int(attempt[0]) >= self._attempt

    def __iter__(self) -> Iterator[str]:
        """Give those that are known by name."""
        return iter(sorted(self._names))

    def __len__(self) -> int:
        """Count those that are known by name."""
        return len(self._names)


def _quoted(name: str) -> str:
    # Dot and tilde separate, so they must not occur inside a name; slashes and the like would not
    # do in a file name.
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
