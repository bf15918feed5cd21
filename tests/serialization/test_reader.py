"""Bytes that no serializer wrote: a plain value or a SerializationError, and nothing else."""

from __future__ import annotations

import dataclasses
import os
import pickle
import struct
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcp.errors import SerializationError
from streamcp.serialization.deserializer import Deserializer, GenericRecord
from streamcp.serialization.reader import MAKE, read_value
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer

CALLS: list[str] = []


@dataclasses.dataclass
class Trap:
    """Has every method that some unpickler would call."""

    dsn: str
    items: list[Any]

    def __post_init__(self) -> None:
        CALLS.append("post_init")

    def __setstate__(self, state: Any) -> None:
        CALLS.append("setstate")

    def __call__(self, *args: Any) -> None:
        CALLS.append("call")

    def append(self, item: Any) -> None:
        CALLS.append("append")

    def extend(self, items: Any) -> None:
        CALLS.append("extend")

    def add(self, item: Any) -> None:
        CALLS.append("add")

    def __setitem__(self, key: Any, value: Any) -> None:
        CALLS.append("setitem")


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: Any


class Pair(NamedTuple):
    left: Any
    right: Any


def registry() -> TypeRegistry:
    made = TypeRegistry()
    for cls in (Trap, Point, Pair):
        made.declare(cls, step="s")
    return made


def table() -> tuple[dict[str, Any], ...]:
    serializer = Serializer(registry())
    for value in (Trap("d", []), Point(1, 2), Pair(1, 2)):
        serializer.dumps(value, step="s")
    return serializer.classes()


TABLE = table()
TRAP = b"h\x00(K\x00\x8c\x01d]tR"  # make(0, "d", [])
POINT = b"h\x00(K\x01K\x05K\x06tR"


def loads(body: bytes) -> Any:
    return Deserializer(TABLE, registry()).loads(b"\x80\x05" + body)


@pytest.fixture(autouse=True)
def nothing_runs_and_no_class_changes() -> Any:
    CALLS.clear()
    before = {cls: dict(vars(cls)) for cls in (Trap, Point, Pair)}
    yield
    assert CALLS == []
    assert {cls: dict(vars(cls)) for cls in before} == before


def test_an_instance_by_hand_is_read_without_running_its_class() -> None:
    trap = loads(TRAP + b".")
    assert (type(trap), trap.dsn, trap.items) == (Trap, "d", [])
    assert loads(POINT + b".") == Point(5, 6)


GLOBAL = b"cposix\nsystem\n"
STACK_GLOBAL = b"\x8c\x05posix\x8c\x06system\x93"
HOSTILE = {
    "global call": GLOBAL + b"\x8c\x04trueq\x00\x85R.",
    "stack global call": STACK_GLOBAL + b"\x8c\x04true\x85R.",
    "global of a declared class": b"ctest_reader\nTrap\n.",
    "class attribute by slot state": b"ctest_reader\nTrap\n(N}\x8c\x06__eq__Nstb.",
    "slot state on an instance": POINT + b"(N}\x8c\x01xK\x09stb.",
    "state on an instance": POINT + b"}\x8c\x01xK\x09sb.",
    "setstate of an instance": TRAP + b"}b.",
    "call of an instance": TRAP + b"K\x01\x85R.",
    "call of a text": b"\x8c\x06systemK\x01\x85R.",
    "append to an instance": TRAP + b"K\x01a.",
    "appends to an instance": TRAP + b"(K\x01K\x02e.",
    "additems to an instance": TRAP + b"(K\x01\x90.",
    "setitem on an instance": TRAP + b"K\x01K\x02s.",
    "setitems on an instance": TRAP + b"(K\x01K\x02u.",
    "append to a tuple": b")K\x01a.",
    "newobj": GLOBAL + b")\x81.",
    "newobj on make": b"h\x00)\x81.",
    "newobj_ex on make": b"h\x00)}\x92.",
    "inst": b"(\x8c\x04trueiposix\nsystem\n.",
    "obj": b"(" + GLOBAL + b"\x8c\x04trueo.",
    "obj with make": b"(h\x00K\x00o.",
    "ext1": b"\x82\x01.",
    "ext2": b"\x83\x01\x00.",
    "ext4": b"\x84\x01\x00\x00\x00.",
    "persistent id": b"Pabc\n.",
    "binary persistent id": b"\x8c\x03abcQ.",
    "next buffer": b"\x97.",
    "readonly buffer": b"\x8c\x01a\x98.",
    "make itself": b"h\x00.",
    "make in a list": b"]h\x00a.",
    "make in a tuple": b"h\x00\x85.",
    "make smuggled by the memo": b"]h\x00\x94h\x01" + b"(K\x01K\x05K\x06tR0a.",
    "make dropped": b"h\x000N.",
    "make called with a list": b"h\x00]K\x00aR.",
    "make without a number": b"h\x00)R.",
    "class number beyond the table": b"h\x00K\x03\x85R.",
    "negative class number": b"h\x00J\xff\xff\xff\xffK\x01K\x02\x87R.",
    "class number that is no int": b"h\x00\x88K\x01K\x02\x87R.",
    "too few fields": b"h\x00K\x01K\x05\x86R.",
    "too many fields": b"h\x00(K\x01K\x05K\x06K\x07tR.",
    "too few fields of a named tuple": b"h\x00K\x02K\x05\x86R.",
    "huge text": b"X\xff\xff\xff\x7fabc.",
    "huge bytes": b"\x8e" + struct.pack("<Q", 1 << 62) + b"abc.",
    "huge bytearray": b"\x96" + struct.pack("<Q", 1 << 40) + b"abc.",
    "huge number": b"\x8b\xff\xff\xff\x7fabc.",
    "negative length": b"\x8b\xff\xff\xff\xffabc.",
    "huge frame": b"\x95" + struct.pack("<Q", 1 << 62) + b"N.",
    "huge memo index": b"Nr\xff\xff\xff\x7f.",
    "memo index out of range": b"h\x05.",
    "long memo index out of range": b"j\xff\xff\xff\x7f.",
    "text memo get": b"g0\n.",
    "unhashable key": b"}]Ns.",
    "odd number of entries": b"}(K\x01u.",
    "bad utf-8": b"\x8c\x01\xff.",
    "nothing on the stack": b".",
    "two values": b"NN.",
    "mark left open": b"(N.",
    "mark never set": b"Nt.",
    "trailing garbage": b"N.N",
    "no end": b"N",
    "dup": b"N2\x86.",
    "old text number": b"I1\n.",
    "not pickle at all": b"hello",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_data_is_refused(body: bytes) -> None:
    with pytest.raises(SerializationError):
        loads(body)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x04N.", b"N.", b"\x80\x05"])
def test_data_of_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        Deserializer(TABLE, registry()).loads(data)


class Shell:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("echo executed > /dev/null",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_a_command_is_refused(protocol: int) -> None:
    with pytest.raises(SerializationError):
        Deserializer(TABLE, registry()).loads(pickle.dumps(Shell(), protocol))


def test_extension_codes_known_to_the_process_are_refused() -> None:
    import copyreg

    copyreg.add_extension("os", "system", 77)
    try:
        with pytest.raises(SerializationError):
            loads(b"\x82\x4d\x8c\x04true\x85R.")
    finally:
        copyreg.remove_extension("os", "system", 77)


@pytest.mark.parametrize("nest", [b"\x85", b"\x85\x94", b"N\x86"])
def test_tuples_nested_without_end_are_refused(nest: bytes) -> None:
    with pytest.raises(SerializationError, match=r"nested too deeply"):
        loads(b")" + nest * 1_000_000 + b".")


def test_records_nested_without_end_are_refused() -> None:
    count = 100_000
    with pytest.raises(SerializationError, match=r"nested too deeply"):
        loads(b"h\x00K\x01K\x01" * count + b"N" + b"\x87R" * count + b".")


def test_frozensets_nested_without_end_are_refused() -> None:
    with pytest.raises(SerializationError, match=r"nested too deeply|keys are too large"):
        loads(b"(" * 100_000 + b"\x91" * 100_000 + b".")


def test_lists_nested_without_end_do_no_harm() -> None:
    value = loads(b"]" * 200_000 + b"a" * 199_999 + b".")
    depth = 0
    while value:
        value, depth = value[0], depth + 1
    assert depth == 199_999


def doubling(begin: bytes, close: bytes) -> bytes:
    """Memo entry i + 1 is a container that holds entry i twice; the last one is left."""
    steps = b"".join(
        begin + b"h" + bytes([i]) + b"h" + bytes([i]) + close + b"\x940" for i in range(1, 60)
    )
    return b"N\x85\x940" + steps + b"h\x3c"


def test_a_key_of_endless_size_in_few_bytes_is_refused() -> None:
    endless = doubling(b"", b"\x86")
    for body in (b"}" + endless + b"Ns.", b"\x8f(" + endless + b"\x90.", b"(" + endless + b"\x91."):
        with pytest.raises(SerializationError, match=r"keys are too large"):
            loads(body)


def test_a_value_of_endless_size_in_few_bytes_is_shared_not_expanded() -> None:
    value = loads(doubling(b"](", b"e") + b".")
    assert value[0] is value[1]


def plain(value: Any) -> bool:
    """Only what a snapshot may consist of; checked without trusting any equality."""
    waiting, seen = [value], set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, list | tuple | set | frozenset):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.keys())
            waiting.extend(part.values())
        elif isinstance(part, Trap | Point):
            waiting.extend(vars(part).values())
        elif type(part) not in (type(None), bool, int, float, str, bytes, bytearray):
            return False
    return True


SAMPLE: Any = [
    Point(1, "text"), Trap("dsn", [1.5, None, True]), Pair(b"bytes", {"key": {3, 70_000}}),
    {(1, Point(2, 3)): frozenset({1, 2})}, 2**80, bytearray(b"abc"), "long " * 80,
]  # fmt: skip


def sample_bytes() -> bytes:
    serializer = Serializer(registry())
    for value in (Trap("d", []), Point(1, 2), Pair(1, 2)):
        serializer.dumps(value, step="s")
    return serializer.dumps(SAMPLE, step="s")


SAMPLE_BYTES = sample_bytes()


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SAMPLE_BYTES) - 1), st.integers(0, 255)), max_size=6))
def test_flipped_bytes_give_a_plain_value_or_an_error(flips: list[tuple[int, int]]) -> None:
    data = bytearray(SAMPLE_BYTES)
    for place, byte in flips:
        data[place] = byte
    try:
        value = Deserializer(TABLE, registry()).loads(bytes(data))
    except SerializationError:
        return
    assert plain(value)


OPCODES = [
    b"h\x00", b"K\x00", b"K\x01", b"K\x02", b"R", b"(", b"t", b"\x85", b"\x86", b"\x87", b")", b"]",
    b"}", b"\x8f", b"a", b"e", b"s", b"u", b"\x90", b"\x91", b"\x94", b"h\x01", b"h\x02", b"0",
    b"1", b"b", b"\x81", b"N", b"\x8c\x01a", b"o", b"2", b"cos\nsystem\n", TRAP, POINT,
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(OPCODES), max_size=25))
def test_random_programs_give_a_plain_value_or_an_error(program: list[bytes]) -> None:
    try:
        value = loads(b"".join(program) + b".")
    except SerializationError:
        return
    assert plain(value)


@pytest.mark.parametrize("end", range(len(SAMPLE_BYTES)))
def test_data_that_is_cut_off_is_refused(end: int) -> None:
    with pytest.raises(SerializationError):
        Deserializer(TABLE, registry()).loads(SAMPLE_BYTES[:end])


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.binary().map(bytearray),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner)
        | st.tuples(inner, inner, inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers(), st.text()), inner)
        | st.sets(st.integers() | st.text())
        | st.frozensets(st.floats(allow_nan=False) | st.tuples(st.integers()))
    ),
    max_leaves=30,
)


@settings(max_examples=200, deadline=None)
@given(values)
def test_plain_values_are_read_as_pickle_reads_them(value: Any) -> None:
    def refuse(number: int, fields: Any) -> Any:
        raise AssertionError

    data = pickle.dumps(value, 5)
    # entry 0 of our memo is taken, so only what refers to no other entry compares directly
    if b"h" not in data and b"j" not in data:
        assert read_value(data, refuse) == pickle.loads(data)
    serializer = Serializer(TypeRegistry())
    assert serializer.loads(serializer.dumps(value, step="s")) == value


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_texts_and_bytes_of_every_length_form_are_read(size: int) -> None:
    serializer = Serializer(TypeRegistry())
    value = ["x" * size, b"y" * size, bytearray(size), list(range(size)), tuple(range(size))]
    assert serializer.loads(serializer.dumps(value, step="s")) == value


def test_more_than_256_objects_are_found_again_in_the_memo() -> None:
    serializer = Serializer(TypeRegistry())
    parts = [[number] for number in range(300)]
    back = serializer.loads(serializer.dumps(parts + parts, step="s"))
    assert back == parts + parts
    assert back[299] is back[599]


def test_make_itself_refuses_to_be_called() -> None:
    with pytest.raises(NotImplementedError):
        MAKE(0)


def test_without_a_registry_hostile_data_is_refused_too() -> None:
    reader = Deserializer(TABLE, None)
    assert isinstance(reader.loads(b"\x80\x05" + POINT + b"."), GenericRecord)
    for body in HOSTILE.values():
        with pytest.raises(SerializationError):
            reader.loads(b"\x80\x05" + body)
