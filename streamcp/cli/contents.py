"""What is inside a stored checkpoint, read without the classes of its job.

The forms are those that the subtasks write: lists of records for channels, rests and writes in
progress; (status, content) for the calls of an asynchronous step; (key, value, timers) for state;
a broadcast state by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamcp.checkpoint.snapshot import IN_FLIGHT, Manifest, SectionHandle
from streamcp.cli.errors import WrongUse
from streamcp.cli.stored_parts import StoredParts
from streamcp.runtime.keyed_async_subtask import EVENT_TIMER, TIMER
from streamcp.runtime.pending import Status
from streamcp.serialization.deserializer import Deserializer, GenericRecord
from streamcp.state.entries import Row, apply_rows
from streamcp.storage.savepoints import SectionReader

_WORDS = {
    Status.RECORD.value: "to be called",
    Status.FROZEN_RECORD.value: "to be called",
    Status.RIGHT_RECORD.value: "to be called, input 2",
    Status.RESULT.value: "result",
    Status.FAILURE.value: "failure",
    TIMER: "timer",
    EVENT_TIMER: "event-time timer",
    Status.WATERMARK.value: "watermark",
    Status.IDLE_STATUS.value: "idle",
    Status.JUDGED_RECORD.value: "to be called",
    Status.JUDGED_RIGHT_RECORD.value: "to be called, input 2",
}


def captured(stored: SectionReader, manifest: Manifest) -> list[dict[str, Any]]:
    """Read what was in flight: subtask, kind and name of each section, and its records.

    A record is {"value": …}, with a "status" if it was in an asynchronous step. Raises
    CheckpointDamaged, or SerializationError for what cannot be read."""
    reader = Deserializer(manifest.classes, None)
    return [
        {
            "subtask": subtask,
            "kind": handle.kind,
            "name": handle.name,
            "records": list(_records(stored, handle, reader)),
        }
        for subtask, handle in _sections(manifest)
        if handle.kind in IN_FLIGHT
    ]


def state_rows(
    stored: SectionReader, manifest: Manifest, step: str, key: str | None
) -> list[dict[str, Any]]:
    """Read the state of `step`: {"key": …, "value": …, "timers": …} per key, and {"subtask": …,
    "value": …} for the broadcast state of each subtask; with `key` only that of the key that is
    written so, as Python writes it or as text. Event-time timers and the last update are left out
    where there are none.

    Raises WrongUse, naming the steps that have state, if this one has none."""
    kinds = ("state", "broadcast")
    sections = [(subtask, one) for subtask, one in _sections(manifest) if one.kind in kinds]
    own = [(subtask, handle) for subtask, handle in sections if handle.name == step]
    if not own:
        names = ", ".join(sorted({handle.name for _, handle in sections})) or "none"
        raise WrongUse(
            f"the checkpoint holds no state of a step {step!r}; steps with state: {names}"
        )
    reader = Deserializer(manifest.classes, None)
    keyed: dict[Any, Row] = {}
    parts = StoredParts()
    rows: list[dict[str, Any]] = []
    for subtask, handle in own:
        for frame in stored.read_section(handle):
            content = reader.loads(frame)
            if handle.kind == "broadcast":
                rows.append({"subtask": subtask, "value": content})
            else:
                apply_rows(content, keyed)
                parts.add(content)
    if key is not None:
        rows = []
    wanted = (row for row in keyed.values() if key is None or _is_written(row[0], key))
    return rows + [_told(row, parts) for row in wanted]


def _told(row: Row, parts: StoredParts) -> dict[str, Any]:
    key, value, timers, *rest = row
    told = {"key": key, "value": parts.whole(key, value), "timers": list(timers)}
    if rest and rest[0]:
        told["event_timers"] = list(rest[0])
    if len(rest) > 1:
        told["updated"] = rest[1]
    return told


def _is_written(key: Any, text: str) -> bool:
    """A text stands for the key that is shown so, or that Python reads from it: 2 for 2 and for
    2.0, ('a',1) for ('a', 1)."""
    if text in (repr(key), str(key)):
        return True
    try:
        return bool(ast.literal_eval(text) == key)
    except (ValueError, SyntaxError):
        return False


def _sections(manifest: Manifest) -> Iterator[tuple[str, SectionHandle]]:
    for one in manifest.acknowledgements:
        for handle in one.sections:
            yield str(one.subtask), handle


def _records(
    stored: SectionReader, handle: SectionHandle, reader: Deserializer
) -> Iterator[dict[str, Any]]:
    for frame in stored.read_section(handle):
        values = reader.loads(frame)
        if handle.kind == "pending" and _are_calls(values):
            yield from (_call(status, content, reader) for status, content in values)
        else:
            yield from ({"value": value} for value in values)


def _are_calls(values: Sequence[Any]) -> bool:
    """Calls of a step, and not the records that a sink was writing: the manifest does not tell."""
    return all(
        type(value) is tuple and len(value) == 2 and type(value[0]) is int and value[0] in _WORDS
        for value in values
    )


def _call(status: int, content: Any, reader: Deserializer) -> dict[str, Any]:
    value = reader.loads(content) if status == Status.FROZEN_RECORD else content
    return {"status": _WORDS[status], "value": value}


def plain(value: Any) -> Any:
    """Turn a value into one that JSON can hold: an instance into its fields with its `class`, and
    what has no other form into its repr."""
    match value:
        case None | bool() | float() | str():
            return value
        case int():
            return value if -(2**53) < value < 2**53 else str(value)
        case GenericRecord():
            return {"class": value.name} | {name: plain(one) for name, one in value.fields.items()}
        case Mapping():
            return {
                key if isinstance(key, str) else repr(key): plain(one) for key, one in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [plain(one) for one in value]
    return repr(value)
