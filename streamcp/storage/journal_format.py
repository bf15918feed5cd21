"""The bytes of a journal's files, as pure encoding and decoding (rules P36 and P37).

A file is a magic word with the format version, then frames: the head, then a frame per group of
answers that became durable together. A frame is its length, the checksum of its content, and the
content. A file may end anywhere, since a crash may come at any moment: what follows the last whole
frame is ignored. The content of a group is JSON (what is told of each answer, and the classes that
their values need and earlier groups of the file have not named), then the values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from xxhash import xxh3_64_intdigest

from streamcp.checkpoint.journal import Answer, JournalHead
from streamcp.storage.format import FORMAT, refuse_newer

MAGIC = b"streamcp journal %03d\n" % FORMAT
_WORD = b"streamcp journal "
_FRAME = struct.Struct("<IQ")  # length and checksum of the content
_HEAD_LENGTH = struct.Struct("<I")


@dataclass(slots=True)
class JournalFile:
    """What was read of one file: as much of it as is whole."""

    head: JournalHead
    classes: list[Mapping[str, Any]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


def encode_head(head: JournalHead) -> bytes:
    """Make the beginning of a file."""
    return MAGIC + _framed(orjson.dumps(asdict(head)))


def encode_group(answers: Sequence[Answer], classes: Sequence[Mapping[str, Any]]) -> bytes:
    """Make the frame of a group; `classes` are those that the file has not named yet."""
    told = orjson.dumps({"classes": list(classes), "answers": list(map(_told, answers))})
    values = b"".join(answer.value for answer in answers)
    return _framed(_HEAD_LENGTH.pack(len(told)) + told + values)


def _told(answer: Answer) -> list[Any]:
    return [
        answer.serial,
        answer.step,
        answer.cut,
        answer.content.hex(),
        answer.state.hex(),
        answer.number,
        answer.at,
        len(answer.value),
    ]


def _framed(content: bytes) -> bytes:
    return _FRAME.pack(len(content), xxh3_64_intdigest(content)) + content


def decode_file(raw: bytes, file: str) -> JournalFile | None:
    """Decode as much of a file as is whole; None if that is not even its head.

    Raises StorageError if the format is newer."""
    if not raw.startswith(MAGIC):
        _refuse_newer(raw, file)
        return None
    frames = _frames(raw)
    head = next(frames, None)
    if head is None:
        return None
    decoded = JournalFile(JournalHead(**orjson.loads(head)))
    for frame in frames:
        _decode_group(frame, decoded)
    return decoded


def _refuse_newer(raw: bytes, file: str) -> None:
    version = raw[len(_WORD) : len(MAGIC) - 1]
    if raw.startswith(_WORD) and version.isdigit():
        refuse_newer(int(version), file)


def _frames(raw: bytes) -> Iterator[bytes]:
    """Yield the contents of the frames up to the first one that is short or damaged."""
    place = len(MAGIC)
    while len(raw) - place >= _FRAME.size:
        length, checksum = _FRAME.unpack_from(raw, place)
        place += _FRAME.size
        content = raw[place : place + length]
        if len(content) < length or xxh3_64_intdigest(content) != checksum:
            return
        yield content
        place += length


def _decode_group(frame: bytes, to: JournalFile) -> None:
    (length,) = _HEAD_LENGTH.unpack_from(frame)
    place = _HEAD_LENGTH.size + length
    told = orjson.loads(frame[_HEAD_LENGTH.size : place])
    to.classes += told["classes"]
    for serial, step, cut, content, state, number, at, size in told["answers"]:
        value = frame[place : place + size]
        place += size
        digests = bytes.fromhex(content), bytes.fromhex(state)
        to.answers.append(Answer(serial, step, cut, *digests, number, at, value))
