from __future__ import annotations

import dataclasses
import gc
import io
import json
import math
import threading
import weakref
from typing import Any

import pytest

from streamcp.errors import SerializationError
from streamcp.serialization.registry import TypeRegistry, codec
from streamcp.serialization.serializer import Serializer


@dataclasses.dataclass
class Order:
    id: int
    lines: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Undeclared:
    x: int


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    __hash__ = None  # type: ignore[assignment]


class MyList(list):  # type: ignore[type-arg]
    pass


def make_serializer(*codecs: Any) -> Serializer:
    registry = TypeRegistry()
    registry.declare(Order, step="s")
    for each in codecs:
        registry.register(each)
    return Serializer(registry)


def test_an_undeclared_data_class_is_refused_naming_step_class_and_remedy() -> None:
    with pytest.raises(SerializationError) as caught:
        make_serializer().dumps([Order(1, [Undeclared(1)])], step="enrich")
    text = str(caught.value)
    assert "step 'enrich'" in text
    assert f"{__name__}.Undeclared" in text
    assert "declare it in an annotation of the step's function" in text
    assert "Job(types=[Undeclared])" in text


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Money(1), "Money"),
        (MyList([1]), "MyList"),
        (threading.Lock(), "lock"),
        (io.StringIO(), "StringIO"),
        (lambda: 1, "function"),
        (len, "builtin_function_or_method"),
        (math, "module"),
        (Order, "type"),
        (int, "type"),
        (ValueError("x"), "ValueError"),
        (iter([1]), "list_iterator"),
        ((x for x in [1]), "generator"),
        (object(), "object"),
        (..., "ellipsis"),
        (NotImplemented, "NotImplementedType"),
        (Order(1).__eq__, "method"),
        (memoryview(b"a"), "memoryview"),
    ],
)
def test_what_could_not_be_read_back_is_refused_when_written(value: Any, name: str) -> None:
    for nested in (value, [value], {"key": (value,)}, Order(1, [value])):
        for write in (make_serializer().dumps, make_serializer().copy):
            with pytest.raises(SerializationError) as caught:
                write(nested, step="enrich")
            assert "step 'enrich'" in str(caught.value)
            assert name in str(caught.value)


def test_a_class_that_is_no_data_class_is_refused_with_a_codec_as_the_remedy() -> None:
    with pytest.raises(SerializationError, match=r"sc\.codec\(Money, encode, decode\)"):
        make_serializer().dumps(Money(1), step="s")


def test_a_subclass_of_a_declared_class_is_not_taken_for_it() -> None:
    @dataclasses.dataclass
    class Special(Order):
        more: int = 0

    with pytest.raises(SerializationError, match=r"Special"):
        make_serializer().dumps(Special(1), step="s")


def test_a_codec_writes_and_reads_instances() -> None:
    serializer = make_serializer(codec(Money, lambda m: m.cents, Money))
    value = [Money(5), Order(1, [Money(6)])]
    assert serializer.loads(serializer.dumps(value, step="s")) == value
    copied = serializer.copy(value[0], step="s")
    assert copied == value[0]
    assert copied is not value[0]


def test_a_failing_encode_is_told_with_its_step() -> None:
    serializer = make_serializer(codec(Money, lambda m: m.missing, Money))  # type: ignore[attr-defined]
    with pytest.raises(SerializationError, match=r"step 's'.*missing"):
        serializer.dumps(Money(1), step="s")


def test_shared_objects_stay_shared() -> None:
    shared, order = [1], Order(1)
    for back in both({"a": shared, "b": shared, "c": [order, order, Order(1)]}):
        assert back["a"] is back["b"]
        assert back["c"][0] is back["c"][1]
        assert back["c"][0] is not back["c"][2]


def both(value: Any) -> list[Any]:
    serializer = make_serializer()
    return [serializer.loads(serializer.dumps(value, step="s")), serializer.copy(value, step="s")]


def test_containers_that_contain_themselves_come_back() -> None:
    circle: list[Any] = []
    circle.append(circle)
    pair = ([],)  # type: ignore[var-annotated]
    pair[0].append(pair)
    long = ([], 1, 2, 3)  # type: ignore[var-annotated]
    long[0].append(long)
    mapping: dict[str, Any] = {}
    mapping["self"] = mapping
    for back in both([circle, pair, long, mapping]):
        assert back[0][0] is back[0]
        assert back[1][0][0] is back[1]
        assert back[2][0][0] is back[2]
        assert back[3]["self"] is back[3]


def test_a_record_in_a_list_of_its_own_comes_back() -> None:
    order = Order(1)
    order.lines.append(order)
    for back in both([order, order]):
        assert back[0].lines[0] is back[0] is back[1]


@pytest.mark.parametrize("attempt", ["dumps", "copy"])
def test_records_that_refer_to_each_other_directly_are_refused(attempt: str) -> None:
    order, other = Order(1), Order(2)
    order.lines, other.lines = other, order  # type: ignore[assignment]
    with pytest.raises(SerializationError, match=r"step 's': a Order contains itself"):
        getattr(make_serializer(), attempt)(order, step="s")


def test_a_value_nested_too_deeply_is_refused() -> None:
    value: Any = None
    for _ in range(100_000):
        value = [value]
    with pytest.raises(SerializationError, match=r"nested too deeply"):
        make_serializer().dumps(value, step="s")


@pytest.mark.parametrize(
    "value",
    [
        [1, "a"],
        {"a": 1},
        {1, 2},
        Order(1),
        Order(1, [2]),
        [[1]],
        {"a": [1]},
        bytearray(b"a"),
        [Order(1)],
    ],
    ids=repr,
)
def test_a_copy_is_equal_and_private(value: Any) -> None:
    serializer = make_serializer()
    for _ in range(2):  # the second time by the short way
        copied = serializer.copy(value, step="s")
        assert copied == value
        assert copied is not value
        assert type(copied) is type(value)
    nested = serializer.copy([value, value], step="s")
    assert nested[0] is nested[1] is not value


def test_a_copy_lives_no_longer_than_it_is_held() -> None:
    registry = TypeRegistry()
    registry.declare(Order, step="s")
    gc.disable()
    try:
        made = Serializer(registry).copy(Order(1, ["a", ("b",)]), step="s")
        reference = weakref.ref(made)
        del made
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("value", [1, "a", None, 2.5, True, b"x"])
def test_a_plain_value_is_its_own_copy(value: Any) -> None:
    assert make_serializer().copy(value, step="s") is value


def test_the_class_table_is_json_and_only_grows() -> None:
    registry = TypeRegistry()
    registry.declare(Order, step="s")
    serializer = Serializer(registry)
    assert serializer.classes() == ()
    data = serializer.dumps(1j, step="s")
    first = serializer.classes()
    serializer.dumps([Order(1), 2j], step="s")
    registry.declare(Undeclared, step="t")
    serializer.dumps(Undeclared(1), step="t")
    table = serializer.classes()
    assert table[: len(first)] == first
    assert json.loads(json.dumps(table)) == list(table)
    assert table[1] == {
        "name": f"{__name__}.Order",
        "kind": "dataclass",
        "fields": ["id", "lines"],
        "types": ["int", "list"],
    }
    assert [entry["name"].rpartition(".")[2] for entry in table] == [
        "complex",
        "Order",
        "Undeclared",
    ]
    assert serializer.loads(data) == 1j


def test_no_class_is_named_in_the_bytes() -> None:
    data = make_serializer().dumps([Order(1)], step="s")
    assert b"Order" not in data
    assert b"streamcp" not in data
    assert b"make" not in data


def test_an_error_in_the_middle_leaves_the_serializer_usable() -> None:
    serializer = make_serializer()
    with pytest.raises(SerializationError):
        serializer.dumps([Order(1), object()], step="s")
    assert serializer.loads(serializer.dumps([Order(1)], step="s")) == [Order(1)]
