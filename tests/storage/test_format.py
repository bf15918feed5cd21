from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.checkpoint.snapshot import Manifest, Section, SectionHandle
from streamcp.errors import CheckpointDamaged, StorageError
from streamcp.storage import format
from streamcp.testing.storage_checks import SECTIONS, example_manifest

FILE = "chk-00000001/data-1-1"
HANDLES = format.section_handles(FILE, SECTIONS)
MANIFEST = example_manifest("orders", 1, 1, HANDLES)


def new_section(kind: Any, name: str, frames: tuple[bytes, ...], records: int) -> Section:
    groups = tuple((n,) for n in range(len(frames))) if kind == "state" else ()
    return Section(kind, name, frames, records, groups)


sections = st.builds(
    new_section,
    kind=st.sampled_from(["state", "pending", "channel"]),
    name=st.text(max_size=5),
    frames=st.lists(st.binary(max_size=20), max_size=4).map(tuple),
    records=st.integers(0, 9),
)
json_values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


def sealed(document: dict[str, object]) -> bytes:
    """Seal any JSON, also what `format.seal` would not write."""
    empty = format.seal("attempt", 1, {})
    digits = slice(len(b'{"checksum":"'), len(b'{"checksum":"') + 16)
    body = b'",' + orjson.dumps(document)[1:]
    return empty[: digits.start] + format.checksum([body]).encode() + body


def manifest_document() -> dict[str, object]:
    raw = format.encode_manifest(MANIFEST, 7)
    document = orjson.loads(raw)
    del document["checksum"]
    assert isinstance(document, dict)
    return document


def decode(raw: bytes) -> Manifest:
    return format.decode_manifest(format.unseal(raw, "file"))


@given(st.lists(sections, max_size=4).map(tuple))
def test_sections_are_cut_out_where_their_handles_say(contents: tuple[Section, ...]) -> None:
    raw = b"".join(format.data_chunks(contents))
    format.check_data_magic(raw[: len(format.DATA_MAGIC)], FILE)
    handles = format.section_handles(FILE, contents)
    for section, handle in zip(contents, handles, strict=True):
        content = raw[handle.offset : handle.offset + handle.size]
        assert tuple(format.section_frames(content, handle, FILE)) == section.frames
    assert len(raw) == (handles[-1].offset + handles[-1].size if handles else len(raw))


def test_section_that_ends_early_is_short() -> None:
    with pytest.raises(CheckpointDamaged, match=f"{FILE} is short: section state of count"):
        format.section_frames(b"first", HANDLES[0], FILE)


def test_section_with_another_byte_has_a_wrong_checksum() -> None:
    content = b"First groupthird group"
    with pytest.raises(CheckpointDamaged, match="checksum of section state of count is wrong"):
        format.section_frames(content, HANDLES[0], FILE)


@pytest.mark.parametrize("head", [b"", b"streamcp data 0", b"other magic 000001\n", b"\0" * 19])
def test_data_file_with_another_beginning_is_damaged(head: bytes) -> None:
    with pytest.raises(CheckpointDamaged, match="does not begin"):
        format.check_data_magic(head, FILE)


def test_data_file_of_a_newer_format_is_refused() -> None:
    with pytest.raises(StorageError, match=r"has format 2.*upgrade streamcp"):
        format.check_data_magic(b"streamcp data 002\n", FILE)


def test_manifest_is_read_back_as_it_was() -> None:
    raw = format.encode_manifest(MANIFEST, 7)
    assert decode(raw) == MANIFEST
    assert format.unseal(raw, "file").number == 7


def test_manifest_is_readable_json() -> None:
    document = orjson.loads(format.encode_manifest(MANIFEST, 7))
    assert document["manifest"]["job"] == "orders"


def test_manifest_of_a_newer_format_is_refused() -> None:
    raw = sealed({**manifest_document(), "format": 2})
    with pytest.raises(StorageError, match=r"file has format 2, but.*upgrade streamcp"):
        decode(raw)


def test_manifest_with_unknown_values_is_refused_when_written() -> None:
    with pytest.raises(StorageError, match="cannot be written as JSON"):
        format.encode_manifest(replace(MANIFEST, statistics={"reason": object()}), 7)


def test_log_entry_of_another_kind_is_no_manifest() -> None:
    raw = format.seal("attempt", 1, {"attempt": 1})
    with pytest.raises(CheckpointDamaged, match="not a manifest's"):
        decode(raw)


@given(st.data())
def test_any_changed_byte_of_a_document_is_found(data: st.DataObject) -> None:
    raw = bytearray(format.encode_manifest(MANIFEST, 7))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CheckpointDamaged):
        decode(bytes(raw))


@given(st.data())
def test_truncated_document_is_found(data: st.DataObject) -> None:
    raw = format.encode_manifest(MANIFEST, 7)
    with pytest.raises(CheckpointDamaged):
        decode(raw[: data.draw(st.integers(0, len(raw) - 1))])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_damaged(raw: bytes) -> None:
    with pytest.raises(CheckpointDamaged):
        format.unseal(raw, "file")


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a JSON value."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


@given(st.sampled_from(places(manifest_document())), json_values)
def test_hostile_manifest_is_read_or_damaged_never_another_error(
    place: tuple[str | int, ...], value: object
) -> None:
    """Its checksum is right, as that of a forged one is."""
    document = manifest_document()
    inner: object = document
    for step in place[:-1]:
        inner = inner[step]  # type: ignore[index]
    inner[place[-1]] = value  # type: ignore[index]
    try:
        raw = sealed(document)
    except orjson.JSONEncodeError:
        return
    try:
        decoded: object = decode(raw)
    except StorageError as error:
        decoded = str(error)
    assert isinstance(decoded, Manifest) or "file" in str(decoded)


def test_manifest_written_before_jobs_could_change_is_read() -> None:
    """P36: a field that older manifests lack has the value that they meant."""
    document = manifest_document()
    assert document["manifest"].pop("replaying") is False  # type: ignore[attr-defined]
    assert not decode(sealed(document)).replaying
    changed = replace(MANIFEST, replaying=True)
    assert decode(format.encode_manifest(changed, 7)).replaying
    assert document["manifest"].pop("life") == ""  # type: ignore[attr-defined]
    assert decode(sealed(document)).life == ""
    assert decode(format.encode_manifest(replace(MANIFEST, life="7"), 7)).life == "7"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("job",), None, "field 'job' is not a string"),
        (("checkpoint_id",), True, "field 'checkpoint_id' is not an integer"),
        (("checkpoint_id",), 0, "field 'checkpoint_id' is below 1"),
        (("mode",), "sideways", "field 'mode' is none of aligned, unaligned"),
        (("final",), 1, "field 'final' is not true or false"),
        (("replaying",), 1, "field 'replaying' is not true or false"),
        (("tasks",), {}, "field 'tasks' is not a list"),
        (("tasks", 0), 3, r"field 'tasks\[0\]' is damaged: it is not a JSON object"),
        (("tasks", 0, "steps"), [1], "field 'steps' is not a list of strings"),
        (("classes",), [[]], r"field 'classes\[0\]' is damaged"),
        (("statistics",), [], "field 'statistics' is not a JSON object"),
        (
            ("acknowledgements", 0, "sections", 1, "file"),
            "../../etc/passwd",
            r"'acknowledgements\[0\]', field 'sections\[1\]' is damaged: field 'file' is not",
        ),
        (
            ("acknowledgements", 0, "sections", 0, "lengths"),
            [-1],
            "'lengths' is not a list of integers, 0 or more",
        ),
        (("acknowledgements", 0, "sections", 0, "key_groups"), [[1]], "not one entry per frame"),
        (
            ("acknowledgements", 0, "sections", 0, "key_groups"),
            [[1], [2, 3], [4]],
            "does not end with a group",
        ),
        (("acknowledgements", 0, "sections", 0, "key_groups"), [1], "not a list of lists"),
        (("acknowledgements", 0, "sections", 0, "key_groups"), [], "not one entry per frame"),
        (("acknowledgements", 0, "statistics", "sync"), "1", "'sync' is not a number"),
        (("acknowledgements", 0, "statistics", "blocked"), {"a": []}, "'a' is not a number"),
    ],
)
def test_damaged_field_is_named(path: tuple[str | int, ...], value: object, message: str) -> None:
    document = manifest_document()
    inner: object = document["manifest"]
    for step in path[:-1]:
        inner = inner[step]  # type: ignore[index]
    inner[path[-1]] = value  # type: ignore[index]
    with pytest.raises(CheckpointDamaged, match=message):
        decode(sealed(document))


def test_document_that_is_no_object_is_damaged() -> None:
    body = b'",,'
    raw = b'{"checksum":"' + format.checksum([body]).encode() + body
    with pytest.raises(CheckpointDamaged, match="no valid JSON"):
        format.unseal(raw, "file")


def test_handles_keep_key_groups() -> None:
    assert HANDLES[0] == SectionHandle(
        "state",
        "count",
        7,
        FILE,
        len(format.DATA_MAGIC),
        (11, 0, 11),
        HANDLES[0].checksum,
        ((0, 3, 1), (2,), (5,)),
    )
