"""Names of subtasks, channels and transactions: ordered, printable, stable across restarts."""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True, order=True)
class TransactionId:
    """The identity of a sink's transaction in the outside world (rule P30).

    `number` counts the transactions of one sink subtask within one attempt.
    """

    job: str
    sink: str
    subtask: int
    attempt: int
    number: int

    def __str__(self) -> str:
        """A stable text for use in file names and tables of the target."""
        return f"{self.job}-{self.sink}-{self.subtask}-{self.attempt}-{self.number}"
