"""What a snapshot consists of: the vocabulary of storage, runtime and coordinator.

A subtask's snapshot is a list of sections. A section is one kind of content of one named thing:
the keyed state of a step, the captured elements of a channel. Its content is a list of frames
(bytes), frozen separately and read back one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from streamcp.checkpoint.key_groups import Runs
from streamcp.elements import CheckpointMode
from streamcp.identifiers import SubtaskId

SectionKind: TypeAlias = Literal[
    "position",  # of a source: {split: position after the last record handed on}
    "rest",  # records that a source yielded and the pipeline has not worked off
    "state",  # keyed state with its timers, by key group
    "batch",  # records of a batch that is not full yet, and when it is due
    "broadcast",  # the state that a broadcast input changes; every subtask's is the same
    "calls",  # ids that an async step has given: the next ones, and those of calls not ended
    "journal",  # of an async step: which journaled answers its cut divides (see `journal`)
    "pending",  # the pending list of an async step or sink, in arrival order
    "transactions",  # of a sink: those not known to be committed
    "channel",  # captured elements of one input channel: records, and marks between them
    "event_time",  # of a subtask: how far it has come, and what its inputs have announced
]
IN_FLIGHT: frozenset[SectionKind] = frozenset({"rest", "pending", "channel"})
"""Kinds whose records were on their way when the snapshot was taken."""


@dataclass(frozen=True, slots=True)
class Section:
    """Frozen content, ready to be written.

    `name` is the step's, or the channel's as `str(ChannelId)`. `records` counts what it holds.
    `key_groups` tells for "state" of each frame whose rows it has, and is empty for other kinds.
    """

    kind: SectionKind
    name: str
    frames: tuple[bytes, ...]
    records: int
    key_groups: tuple[Runs, ...] = ()


@dataclass(frozen=True, slots=True)
class SectionHandle:
    """Where a section lies in a data file: `lengths` are those of its frames, one after another,
    beginning at `offset`. `checksum` covers all of them."""

    kind: SectionKind
    name: str
    records: int
    file: str
    offset: int
    lengths: tuple[int, ...]
    checksum: str
    key_groups: tuple[Runs, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the section."""
        return sum(self.lengths)


@dataclass(frozen=True, slots=True)
class SubtaskStatistics:
    """Where a checkpoint's time went in one subtask; seconds, with Flink's names.

    `start_delay`: trigger to the first barrier. `alignment`: first to last barrier.
    `blocked`: per input channel, how long it was blocked. `sync`: processing stood still.
    `asynchronous`: from then until storage had the content, durable unless it is small.
    `end_to_end`: trigger to that.
    `escalated_after`: trigger to the escalation, if there was one.
    `state_bytes`: written for this checkpoint; `referenced_bytes`: of the sections of earlier ones
    that it builds on (rule P39).
    """

    start_delay: float = 0.0
    alignment: float = 0.0
    sync: float = 0.0
    asynchronous: float = 0.0
    end_to_end: float = 0.0
    barrier_delay: float = 0.0
    escalated_after: float | None = None
    state_bytes: int = 0
    referenced_bytes: int = 0
    in_flight_bytes: int = 0
    in_flight_records: int = 0
    records_during_alignment: int = 0
    blocked: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A subtask's snapshot of one checkpoint, told by one attempt (rule P3): all of it is durable,
    or becomes so before the checkpoint is complete.

    Several "state" sections of one step belong together and are read in their order: the whole
    state, then changes. All but the last may lie in files of earlier checkpoints (rule P39)."""

    checkpoint_id: int
    attempt: int
    subtask: SubtaskId
    sections: tuple[SectionHandle, ...]
    statistics: SubtaskStatistics
    finished: bool = False


@dataclass(frozen=True, slots=True)
class TaskShape:
    """A task as a manifest records it: enough to check that a restored job is the same job."""

    name: str
    parallelism: int
    steps: tuple[str, ...]
    exactly_once: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """All there is to know of a complete checkpoint; written as `_metadata` (rule P35).

    `classes` is the class table (see `serialization`), `statistics` the job-wide figures of the
    checkpoint as plain JSON values, `final` marks the last checkpoint of a job that finished.
    `fork` is in the names of the transactions of a job that began from a savepoint (rule P30).
    `life` is in the ids of its calls. `replaying` says that it may hold data which a restore of a
    changed job has put to other places and which was not worked off (rule P41). Times are
    milliseconds since the epoch.
    """

    job: str
    checkpoint_id: int
    attempt: int
    mode: CheckpointMode
    triggered_at: int
    completed_at: int
    max_parallelism: int
    tasks: tuple[TaskShape, ...]
    acknowledgements: tuple[Acknowledgement, ...]
    classes: tuple[Mapping[str, Any], ...]
    statistics: Mapping[str, Any] = field(default_factory=dict)
    final: bool = False
    fork: str = ""
    replaying: bool = False
    life: str = ""
