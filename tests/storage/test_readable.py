"""What is taken to be readable without reading it back is readable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamcp.checkpoint.snapshot import Manifest
from streamcp.errors import StorageError
from streamcp.storage import format
from streamcp.storage.readable import is_surely_readable
from streamcp.testing.storage_checks import SECTIONS, example_manifest

Place = tuple[str | int, ...]

FILE = "chk-00000001/data-1-1"
MANIFEST = example_manifest("orders", 1, 1, format.section_handles(FILE, SECTIONS))

atoms: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=2)
    | st.sampled_from(["unaligned", "channel", FILE, "../data", float("nan"), float("inf")])
)
values: st.SearchStrategy[Any] = (
    atoms
    | st.lists(atoms, max_size=3)
    | st.lists(atoms, max_size=3).map(tuple)
    | st.dictionaries(atoms.filter(lambda one: one == one), atoms, max_size=3)
)


def places(value: object, place: Place = ()) -> Iterator[Place]:
    """Every field and every entry of a manifest."""
    if place:
        yield place
    if is_dataclass(value):
        for one in fields(value):
            yield from places(getattr(value, one.name), (*place, one.name))
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from places(inner, (*place, index))


def changed(value: Any, place: Place, new: object) -> Any:
    """The same with another value at `place`."""
    if not place:
        return new
    first, *rest = place
    if isinstance(first, str):
        return replace(value, **{first: changed(getattr(value, first), tuple(rest), new)})
    return (*value[:first], changed(value[first], tuple(rest), new), *value[first + 1 :])


def is_readable(manifest: Manifest) -> bool:
    """Write it, and read it back, if it can be written."""
    try:
        raw = format.seal("manifest", 1, manifest)
    except StorageError:
        return True
    try:
        format.decode_manifest(format.unseal(raw, "file"))
    except StorageError:
        return False
    return True


def test_usual_manifest_needs_no_second_look() -> None:
    assert is_surely_readable(MANIFEST)


@given(st.lists(st.tuples(st.sampled_from([*places(MANIFEST)]), values), min_size=1, max_size=2))
@example([(("acknowledgements", 0, "statistics", "blocked"), {"a": float("nan")})])
@example([(("acknowledgements", 0, "sections", 0, "key_groups"), ((1,),))])
@example([(("acknowledgements", 0, "sections", 0, "key_groups"), ((1,), (2, 3), (4,)))])
@example([(("acknowledgements", 0, "sections", 0, "file"), "../data")])
@example([(("acknowledgements", 0, "sections", 0, "lengths"), (1, -1, 1))])
@example([(("classes",), ({"fields": 1}, None))])
def test_what_is_surely_readable_can_be_read_back(changes: list[tuple[Place, Any]]) -> None:
    manifest = MANIFEST
    for place, value in changes:
        try:
            manifest = changed(manifest, place, value)
        except (AttributeError, TypeError, IndexError):
            return  # the first change has taken the place of the second
    if is_surely_readable(manifest):
        assert is_readable(manifest)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("checkpoint_id",), 0),
        (("mode",), "often"),
        (("tasks", 0, "steps"), ("read", 1)),
        (("acknowledgements", 0, "subtask", "index"), -1),
        (("acknowledgements", 0, "statistics", "sync"), float("nan")),
        (("acknowledgements", 0, "statistics", "blocked"), {"channel": float("nan")}),
        (("acknowledgements", 0, "sections", 0, "kind"), "other"),
        (("acknowledgements", 0, "sections", 0, "file"), "../data"),
        (("acknowledgements", 0, "sections", 0, "lengths"), (-1, 0, 1)),
        (("acknowledgements", 0, "sections", 0, "key_groups"), ((1,),)),
        (("acknowledgements", 0, "sections", 0, "key_groups"), ((1,), (2, 3), (4,))),
        (("acknowledgements", 0, "sections", 0, "key_groups"), (1, 2, 3)),
    ],
)
def test_what_cannot_be_read_back_is_not_written(place: Place, value: object) -> None:
    manifest = changed(MANIFEST, place, value)
    assert not is_readable(manifest)
    with pytest.raises(StorageError):
        format.encode_manifest(manifest, 1)
