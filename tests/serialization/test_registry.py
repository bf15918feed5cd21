from __future__ import annotations

import dataclasses
import enum
import functools
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import pytest

from streamcp.errors import SerializationError
from streamcp.serialization.registry import TypeRegistry, codec, qualified_name

T = TypeVar("T")


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Leaf:
    x: int


@dataclasses.dataclass
class Tree:
    children: list[Tree]
    leaf: dict[str, tuple[Leaf, ...]] | None
    color: Color


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


class Pair(NamedTuple):
    left: Leaf
    right: int


class Row(TypedDict):
    leaf: Leaf


@dataclasses.dataclass
class Half:
    leaf: Leaf
    lost: NoSuchName  # type: ignore[name-defined]  # noqa: F821


class Service:
    """No data class."""


Bound = TypeVar("Bound", bound=Leaf)
LeafId = NewType("LeafId", Leaf)


@pytest.mark.parametrize(
    ("annotation", "found"),
    [
        (Leaf, {Leaf}),
        (Tree, {Tree, Leaf, Color}),
        (list[Leaf] | None, {Leaf}),
        (dict[str, tuple[Leaf, ...]], {Leaf}),
        (Box[Leaf], {Box, Leaf}),
        (Callable[[Leaf], Color], {Leaf, Color}),
        (Annotated[Leaf, "meta"], {Leaf}),
        (Literal[Color.RED], {Color}),
        (Pair, {Pair, Leaf}),
        (Row, {Leaf}),
        (Bound, {Leaf}),
        (LeafId, {Leaf}),
        (Half, {Half, Leaf}),
        (list[Service], set()),
        (Any, set()),
        ("Unresolvable", set()),
        (None, set()),
        (int, set()),
        (Sequence, set()),
    ],
)
def test_an_annotation_declares_every_data_class_in_it(annotation: Any, found: set[type]) -> None:
    registry = TypeRegistry()
    registry.declare(annotation, step="s")
    registry.declare(annotation, step="s")
    assert {c for c in (Leaf, Tree, Box, Color, Pair, Half, Service) if registry.shape(c)} == found


def test_a_class_that_is_no_data_class_is_refused_by_name() -> None:
    with pytest.raises(SerializationError) as caught:
        TypeRegistry().declare(Service, step="enrich")
    assert "'enrich'" in str(caught.value)
    assert "Service" in str(caught.value)
    assert "sc.codec(Service, encode, decode)" in str(caught.value)


def test_a_class_with_a_codec_may_be_declared() -> None:
    registry = TypeRegistry()
    registry.register(codec(Service, lambda _: None, lambda _: Service()))
    registry.declare(Service, step="s")
    assert registry.shape(Service) is not None


def plain(leaf: Leaf, lock: threading.Lock, other: NoSuchName) -> Iterable[Color]: ...  # type: ignore[name-defined,empty-body]  # noqa: F821


async def waiting(leaf: Leaf) -> Color: ...  # type: ignore[empty-body]


async def generating(leaf: Leaf) -> AsyncIterator[Color]:
    yield Color.RED


class Function:
    def __call__(self, leaf: Leaf) -> Color: ...  # type: ignore[empty-body]

    def method(self, leaf: Leaf) -> Color: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    "fn",
    [
        plain,
        waiting,
        generating,
        functools.partial(functools.partial(plain), lock=None),
        Function(),
        Function().method,
        functools.wraps(plain)(lambda *a: None),
    ],
)
def test_a_function_declares_its_parameters_and_its_result(fn: Any) -> None:
    registry = TypeRegistry()
    registry.declare_function(fn, step="s")
    assert registry.shape(Leaf) is not None
    assert registry.shape(Color) is not None


def test_a_class_used_as_a_function_declares_itself() -> None:
    registry = TypeRegistry()
    registry.declare_function(Tree, step="s")
    registry.declare_function(Service, step="s")
    assert registry.shape(Leaf) is not None
    assert registry.shape(Service) is None


@pytest.mark.parametrize("fn", [lambda x: x, len, dict, functools.partial(print)])
def test_a_function_without_annotations_declares_nothing(fn: Any) -> None:
    registry = TypeRegistry()
    registry.declare_function(fn, step="s")
    assert registry.shape(dict) is None


def test_classes_defined_around_a_local_function_are_found() -> None:
    @dataclasses.dataclass
    class Local:
        x: int

    def step(value: Local) -> Local:
        return Local(value.x)

    registry = TypeRegistry()
    registry.declare_function(step, step="s")
    assert registry.shape(Local) is not None


def test_two_classes_of_one_name_are_refused() -> None:
    def make() -> type:
        @dataclasses.dataclass
        class Same:
            x: int

        return Same

    registry = TypeRegistry()
    registry.declare(make(), step="one")
    with pytest.raises(SerializationError, match=r"'two'.*two different classes.*Same"):
        registry.declare(make(), step="two")


def test_a_nested_class_goes_by_its_qualified_name() -> None:
    assert qualified_name(Leaf) == f"{__name__}.Leaf"
    assert qualified_name(dict) == "builtins.dict"


SCRIPT = """
import dataclasses, sys
from streamcp.serialization.registry import TypeRegistry, qualified_name
from streamcp.serialization.serializer import Serializer
from streamcp.serialization.deserializer import Deserializer

@dataclasses.dataclass
class Order:
    id: int

registry = TypeRegistry()
registry.declare(Order, step="s")
NAME = "orders.bin"

def write():
    serializer = Serializer(registry)
    data = serializer.dumps([Order(7)], step="s")
    open(NAME, "wb").write(data)
    open(NAME + ".classes", "w").write(repr(serializer.classes()))

def read():
    import ast
    classes = ast.literal_eval(open(NAME + ".classes").read())
    print(Deserializer(classes, registry).loads(open(NAME, "rb").read()), qualified_name(Order))

if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]]()
"""
WAYS = [
    ["orders.py", "{}"],
    ["-m", "orders", "{}"],
    ["-c", "import orders; orders.{}()"],
]


@pytest.mark.parametrize("writer", WAYS, ids=["script", "module", "imported"])
def test_a_script_reads_its_snapshots_however_it_is_started(
    tmp_path: Path, writer: list[str]
) -> None:
    (tmp_path / "orders.py").write_text(SCRIPT)

    def run(way: list[str], what: str) -> str:
        command = [sys.executable, *(part.format(what) for part in way)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    run(writer, "write")
    assert {run(way, "read") for way in WAYS} == {"[Order(id=7)] orders.Order"}
