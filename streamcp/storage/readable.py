"""Which manifests can be read back for sure, told by looking at them in memory.

Reading one back takes ten times as long, while a checkpoint waits to be durable. Only the usual is
known here: what is not sure may be readable all the same, and whoever asks reads it back to see.
What is sure must be: `format` says what a reader accepts. JSON holds texts, integers of 64 bits
(who encodes larger ones is told), finite numbers, true and false as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from operator import attrgetter
from typing import Any, Final, get_args

from streamcp.checkpoint.snapshot import (
    Acknowledgement,
    Manifest,
    SectionHandle,
    SectionKind,
    SubtaskStatistics,
    TaskShape,
)
from streamcp.elements import CheckpointMode
from streamcp.identifiers import SubtaskId
from streamcp.storage.layout import is_data_file

_KINDS: Final = frozenset(get_args(SectionKind))
_MODES: Final = frozenset(get_args(CheckpointMode))
_INT: Final = frozenset({int})
_STR: Final = frozenset({str})
_FLOAT: Final = frozenset({float})
_DICT: Final = frozenset({dict})

_TEXTS: Final = attrgetter("job", "fork", "life")
_BOOLEANS: Final = attrgetter("final", "replaying")
_BOOL: Final = frozenset({bool})
_POSITIVE: Final = attrgetter("checkpoint_id", "attempt", "max_parallelism")
_HANDLE: Final = attrgetter(
    "kind", "name", "records", "file", "offset", "lengths", "checksum", "key_groups"
)
_HANDLE_TYPES: Final = (str, str, int, str, int, tuple, str, tuple)
_SECONDS: Final = attrgetter(
    "start_delay", "alignment", "sync", "asynchronous", "end_to_end", "barrier_delay"
)
_COUNTS: Final = attrgetter(
    "state_bytes",
    "referenced_bytes",
    "in_flight_bytes",
    "in_flight_records",
    "records_during_alignment",
)


def is_surely_readable(manifest: Manifest) -> bool:
    """Tell whether a manifest that has been encoded can be read back; False may be wrong."""
    return (
        _are(_STR, _TEXTS(manifest))
        and _are(_BOOL, _BOOLEANS(manifest))
        and _are_counts(_POSITIVE(manifest), minimum=1)
        and _are_counts((manifest.triggered_at, manifest.completed_at))
        and type(manifest.mode) is str
        and manifest.mode in _MODES
        and type(manifest.statistics) is dict
        and type(manifest.classes) is tuple
        and _are(_DICT, manifest.classes)
        and type(manifest.tasks) is tuple
        and all(map(_is_readable_task, manifest.tasks))
        and type(manifest.acknowledgements) is tuple
        and all(map(_is_readable_acknowledgement, manifest.acknowledgements))
    )


def _are(types: frozenset[type], values: Iterable[Any]) -> bool:
    return types.issuperset(map(type, values))


def _are_counts(values: tuple[int, ...], minimum: int = 0) -> bool:
    return _INT.issuperset(map(type, values)) and min(values, default=minimum) >= minimum


def _is_readable_task(task: TaskShape) -> bool:
    return (
        type(task) is TaskShape
        and type(task.name) is str
        and _are_counts((task.parallelism,), minimum=1)
        and type(task.steps) is tuple
        and type(task.exactly_once) is tuple
        and _are(_STR, (*task.steps, *task.exactly_once))
    )


def _is_readable_acknowledgement(one: Acknowledgement) -> bool:
    return (
        type(one) is Acknowledgement
        and _are_counts((one.checkpoint_id, one.attempt), minimum=1)
        and type(one.subtask) is SubtaskId
        and type(one.subtask.task) is str
        and _are_counts((one.subtask.index,))
        and type(one.finished) is bool
        and _is_readable_statistics(one.statistics)
        and type(one.sections) is tuple
        and all(map(_is_readable_handle, one.sections))
    )


def _is_readable_statistics(one: SubtaskStatistics) -> bool:
    return (
        type(one) is SubtaskStatistics
        and _are_finite(_SECONDS(one))
        and (one.escalated_after is None or _are_finite((one.escalated_after,)))
        and _are_counts(_COUNTS(one))
        and type(one.blocked) is dict
        and _are(_STR, one.blocked)
        and _are_finite(one.blocked.values())
    )


def _are_finite(values: Iterable[float]) -> bool:
    return _are(_FLOAT, values) and isfinite(sum(values))


def _are_runs(runs: tuple[int, ...]) -> bool:
    return type(runs) is tuple and len(runs) % 2 == 1 and _are_counts(runs)


def _is_readable_handle(one: SectionHandle) -> bool:
    if type(one) is not SectionHandle:
        return False
    fields = kind, _, records, file, offset, lengths, _, key_groups = _HANDLE(one)
    return (
        tuple(map(type, fields)) == _HANDLE_TYPES
        and kind in _KINDS
        and records >= 0
        and offset >= 0
        and _are_counts(lengths)
        and all(map(_are_runs, key_groups))
        and len(key_groups) == (len(lengths) if kind == "state" else 0)
        and is_data_file(file)
    )
