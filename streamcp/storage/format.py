"""The on-disk format, as pure encoding and decoding of bytes (rules P35 and P36).

A data file is a magic word with the format version, then the frames of its sections, one after
another. Manifest and log entries are *documents*: one JSON object whose first field is the
checksum of all bytes behind it, so that every flipped bit is found and `jq` still reads them.

No files here, no paths but the names in messages. A document or data file of a newer format is
refused, whatever else it holds; a format once released stays readable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import orjson
import xxhash

from streamcp.checkpoint.snapshot import (
    Acknowledgement,
    Manifest,
    Section,
    SectionHandle,
    SectionKind,
    SubtaskStatistics,
    TaskShape,
)
from streamcp.elements import CheckpointMode
from streamcp.errors import CheckpointDamaged, StorageError
from streamcp.identifiers import SubtaskId
from streamcp.storage.layout import is_data_file
from streamcp.storage.readable import is_surely_readable
from streamcp.storage.untrusted import Fields

FORMAT = 1
DATA_MAGIC = b"streamcp data %03d\n" % FORMAT

DocumentKind: TypeAlias = Literal["attempt", "ids", "manifest", "savepoint"]

_AT_ONCE = 1 << 16  # bytes that are copied more quickly than frames are taken one by one
_DATA_WORD = b"streamcp data "
_SEAL = b'{"checksum":"'
_DIGITS = 16  # of a 64-bit checksum in hexadecimal


@dataclass(frozen=True, slots=True)
class Document:
    """A manifest or a log entry whose checksum was right. `number` is its place in the log."""

    kind: DocumentKind
    number: int
    content: Fields


# --- data files ---------------------------------------------------------------------------------


def checksum(frames: Sequence[bytes]) -> str:
    """Compute the checksum of all frames together."""
    if sum(map(len, frames)) <= _AT_ONCE:
        return xxhash.xxh3_64_hexdigest(b"".join(frames))
    state = xxhash.xxh3_64()
    for frame in frames:
        state.update(frame)
    return state.hexdigest()


def data_chunks(sections: Sequence[Section]) -> Iterator[bytes]:
    """Yield the bytes of a data file."""
    yield DATA_MAGIC
    for section in sections:
        yield from section.frames


def section_handles(file: str, sections: Sequence[Section]) -> list[SectionHandle]:
    """Tell where `data_chunks` puts each section in `file`."""
    handles = []
    offset = len(DATA_MAGIC)
    for section in sections:
        handle = SectionHandle(
            kind=section.kind,
            name=section.name,
            records=section.records,
            file=file,
            offset=offset,
            lengths=tuple(map(len, section.frames)),
            checksum=checksum(section.frames),
            key_groups=section.key_groups,
        )
        handles.append(handle)
        offset += handle.size
    return handles


def check_data_magic(head: bytes, file: str) -> None:
    """Check the first bytes of a data file.

    Raises CheckpointDamaged, or StorageError if the format is newer than this version's."""
    if head == DATA_MAGIC:
        return
    version = head[len(_DATA_WORD) : len(DATA_MAGIC) - 1]
    if head.startswith(_DATA_WORD) and head.endswith(b"\n") and version.isdigit():
        refuse_newer(int(version), file)
    raise CheckpointDamaged(f"{file} is damaged: it does not begin as a data file does")


def section_frames(content: bytes, handle: SectionHandle, file: str) -> list[bytes]:
    """Cut the bytes of a section into its frames.

    Raises CheckpointDamaged if there are too few bytes or the checksum is wrong."""
    what = f"section {handle.kind} of {handle.name}"
    if len(content) != handle.size:
        end = handle.offset + handle.size
        raise CheckpointDamaged(f"{file} is short: {what} should end at byte {end}")
    if xxhash.xxh3_64_hexdigest(content) != handle.checksum:
        raise CheckpointDamaged(f"{file} is damaged: the checksum of {what} is wrong")
    return list(_cut(content, handle.lengths))


def _cut(content: bytes, lengths: Sequence[int]) -> Iterator[bytes]:
    start = 0
    for length in lengths:
        yield content[start : start + length]
        start += length


# --- documents ----------------------------------------------------------------------------------


def refuse_newer(version: int, file: str) -> None:
    """Raise StorageError if `version` is newer than this version of streamcp can read (P36)."""
    if version > FORMAT:
        raise StorageError(
            f"{file} has format {version}, but this streamcp reads formats up to {FORMAT}: "
            "upgrade streamcp"
        )


def seal(kind: DocumentKind, number: int, content: Any) -> bytes:
    """Encode a document; `content` is what JSON can hold, dataclasses included.

    Raises StorageError if `content` is not that."""
    document = {"kind": kind, "format": FORMAT, "number": number, kind: content}
    try:
        body = b'",' + orjson.dumps(document)[1:]
    except orjson.JSONEncodeError as error:
        raise StorageError(f"the {kind} cannot be written as JSON: {error}") from error
    return _SEAL + xxhash.xxh3_64_hexdigest(body).encode() + body


def unseal(raw: bytes, file: str) -> Document:
    """Decode a document read from `file`.

    Raises CheckpointDamaged, or StorageError if its format is newer."""
    body = raw[len(_SEAL) + _DIGITS :]
    if raw[: len(raw) - len(body)] != _SEAL + xxhash.xxh3_64_hexdigest(body).encode():
        raise CheckpointDamaged(f"{file} is damaged: its checksum is wrong")
    fields = Fields.parse(raw, file)
    refuse_newer(fields.integer("format", minimum=1), file)
    kind: DocumentKind = fields.choice("kind", get_args(DocumentKind))
    return Document(kind, fields.integer("number", minimum=1), fields.nested(kind))


ManifestKind: TypeAlias = Literal["manifest", "savepoint"]


def encode_manifest(manifest: Manifest, number: int, kind: ManifestKind = "manifest") -> bytes:
    """Encode the manifest that completes its checkpoint at `number` of the log.

    Raises StorageError if it could not be read back: a completion must never be unreadable."""
    raw = seal(kind, number, manifest)
    if not is_surely_readable(manifest):
        name = f"the manifest of checkpoint {manifest.checkpoint_id}"
        decode_manifest(unseal(raw, name), kind)
    return raw


def decode_manifest(document: Document, kind: ManifestKind = "manifest") -> Manifest:
    """Decode and validate a manifest, field by field; raises CheckpointDamaged."""
    fields = document.content
    if document.kind != kind:
        raise fields.refuse("kind", f"is {document.kind!r}, not a {kind}'s")
    return Manifest(
        job=fields.text("job"),
        checkpoint_id=fields.integer("checkpoint_id", minimum=1),
        attempt=fields.integer("attempt", minimum=1),
        mode=_mode(fields),
        triggered_at=fields.integer("triggered_at"),
        completed_at=fields.integer("completed_at"),
        max_parallelism=fields.integer("max_parallelism", minimum=1),
        tasks=tuple(map(_task, fields.each("tasks"))),
        acknowledgements=tuple(map(_acknowledgement, fields.each("acknowledgements"))),
        classes=fields.mappings("classes"),
        statistics=fields.mapping("statistics"),
        final=fields.boolean("final"),
        fork=fields.optional_text("fork") or "",
        replaying=fields.boolean("replaying", absent=False),
        life=fields.optional_text("life") or "",
    )


def _mode(fields: Fields) -> CheckpointMode:
    modes: tuple[CheckpointMode, ...] = get_args(CheckpointMode)
    return fields.choice("mode", modes)


def _task(fields: Fields) -> TaskShape:
    return TaskShape(
        name=fields.text("name"),
        parallelism=fields.integer("parallelism", minimum=1),
        steps=fields.texts("steps"),
        exactly_once=fields.texts("exactly_once"),
    )


def _acknowledgement(fields: Fields) -> Acknowledgement:
    subtask = fields.nested("subtask")
    return Acknowledgement(
        checkpoint_id=fields.integer("checkpoint_id", minimum=1),
        attempt=fields.integer("attempt", minimum=1),
        subtask=SubtaskId(subtask.text("task"), subtask.integer("index")),
        sections=tuple(map(_handle, fields.each("sections"))),
        statistics=_statistics(fields.nested("statistics")),
        finished=fields.boolean("finished"),
    )


def _handle(fields: Fields) -> SectionHandle:
    kinds: tuple[SectionKind, ...] = get_args(SectionKind)
    handle = SectionHandle(
        kind=fields.choice("kind", kinds),
        name=fields.text("name"),
        records=fields.integer("records"),
        file=fields.text("file"),
        offset=fields.integer("offset"),
        lengths=fields.integers("lengths"),
        checksum=fields.text("checksum"),
        key_groups=fields.lists_of_integers("key_groups"),
    )
    if not is_data_file(handle.file):
        raise fields.refuse("file", "is not the name of a data file")
    if len(handle.key_groups) != (len(handle.lengths) if handle.kind == "state" else 0):
        raise fields.refuse("key_groups", "has not one entry per frame")
    if not all(len(runs) % 2 for runs in handle.key_groups):
        raise fields.refuse("key_groups", "has an entry that does not end with a group")
    return handle


def _statistics(fields: Fields) -> SubtaskStatistics:
    return SubtaskStatistics(
        start_delay=fields.number("start_delay"),
        alignment=fields.number("alignment"),
        sync=fields.number("sync"),
        asynchronous=fields.number("asynchronous"),
        end_to_end=fields.number("end_to_end"),
        barrier_delay=fields.number("barrier_delay"),
        escalated_after=fields.optional_number("escalated_after"),
        state_bytes=fields.integer("state_bytes"),
        referenced_bytes=fields.integer("referenced_bytes", absent=0),
        in_flight_bytes=fields.integer("in_flight_bytes"),
        in_flight_records=fields.integer("in_flight_records"),
        records_during_alignment=fields.integer("records_during_alignment"),
        blocked=fields.numbers("blocked"),
    )
