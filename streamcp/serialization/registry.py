"""Which classes a job's snapshots may hold, and under which names they are recorded (rule P37).

Filled while the job is described, from annotations and `Job(types=...)`. Knows nothing of bytes
and numbers.
"""

from __future__ import annotations

import abc
import functools
import inspect
import pathlib
import sys
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from streamcp.errors import SerializationError
from streamcp.serialization.builtin_types import builtin_shape
from streamcp.serialization.shapes import Shape, shape_of

T = TypeVar("T")
_MAIN_NAMES: Final = ("__main__", "__mp_main__")


@dataclass(frozen=True, slots=True)
class TypeCodec:
    """How instances of one class are written and read; made by `codec`."""

    cls: type[Any]
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def codec(cls: type[T], encode: Callable[[T], Any], decode: Callable[[Any], T], /) -> TypeCodec:
    """Let snapshots hold instances of `cls`, which need not be a data class.

    `encode` turns an instance into a value that a snapshot may hold, `decode` turns that back
    into an equal instance. Subclasses of `cls` need codecs of their own.
    """
    return TypeCodec(cls, encode, decode)


def qualified_name(cls: type) -> str:
    """Module and qualified name of `cls`, as a class table records it.

    A class of a script goes by the script's real module name, however it was started:
    `python orders.py`, `python -m orders` and loading it as module `orders` agree.
    """
    module = cls.__module__
    if module in _MAIN_NAMES:
        module = _real_name(module)
    return f"{module}.{cls.__qualname__}"


def _real_name(main_name: str) -> str:
    main = sys.modules.get(main_name)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in _MAIN_NAMES:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return pathlib.Path(file).stem if file else main_name


class TypeRegistry:
    """The classes of one job. Declaring is idempotent and has no order."""

    def __init__(self) -> None:
        self._by_class: dict[type, Shape] = {}
        self._by_name: dict[str, Shape] = {}

    def declare(self, cls_or_annotation: Any, *, step: str) -> None:
        """Accept the data classes of an annotation, and those in their fields, recursively.

        Looks into unions, containers and generics. What cannot be resolved, and classes further
        inside that are no data classes, are left to be refused when such a value is written.

        Raises SerializationError if `cls_or_annotation` itself is a class that no snapshot
        can hold, or two classes have one name; names `step`, class and remedy.
        """
        if _is_opaque(cls_or_annotation) and cls_or_annotation not in self._by_class:
            name = cls_or_annotation.__qualname__
            if shape_of(cls_or_annotation, name) is None:
                raise SerializationError(f"step {step!r}: {advice(cls_or_annotation)}")
        self._walk([cls_or_annotation], step)

    def declare_function(self, fn: Callable[..., Any], *, step: str) -> None:
        """Accept the data classes in the annotations of `fn`: a function, method, partial,
        callable object, or a class that is used as a factory. What cannot be resolved and what is
        no data class is ignored.

        Raises SerializationError if two classes have one name.
        """
        while isinstance(fn, functools.partial):
            fn = fn.func
        if isinstance(fn, type):
            self._walk([fn], step)
            return
        if not hasattr(fn, "__annotations__"):
            fn = getattr(type(fn), "__call__", fn)  # noqa: B004 (the function, not the question)
        self._walk(list(_hints(inspect.unwrap(fn))), step)

    def register(self, codec: TypeCodec) -> None:
        """Accept the class of `codec`; its pair of functions is used also for a data class.

        Raises SerializationError if another class has the same name.
        """
        cls, encode, decode = codec.cls, codec.encode, codec.decode

        def make(values: Sequence[Any]) -> Any:
            (encoded,) = values
            return decode(encoded)

        name = qualified_name(cls)
        self._add(Shape(cls, name, "codec", ("encoded",), lambda v: (encode(v),), make), "types")

    def shape(self, cls: type) -> Shape | None:
        """How instances of `cls` are written; None if it was neither declared nor registered."""
        return self._by_class.get(cls)

    def shapes(self) -> Sequence[Shape]:
        """The shapes of all classes that were declared or registered, in no order."""
        return list(self._by_class.values())

    def shape_named(self, name: str) -> Shape | None:
        """The shape of the class that has this `qualified_name`; None if there is none."""
        return self._by_name.get(name)

    def _walk(self, waiting: list[Any], step: str) -> None:
        seen: set[int] = set()
        kept = []  # an annotation that is gone would give its id to another one
        while waiting:
            annotation = waiting.pop()
            if id(annotation) in seen:
                continue
            seen.add(id(annotation))
            kept.append(annotation)
            waiting += _inside(annotation)
            if isinstance(annotation, type):
                waiting += self._enter(annotation, step)

    def _enter(self, cls: type, step: str) -> list[Any]:
        """Accept `cls` if it is a data class; return the annotations of its fields."""
        if typing.is_typeddict(cls):
            return list(_hints(cls))
        if cls in self._by_class or builtin_shape(cls) is not None or cls.__module__ == "builtins":
            return []
        shape = shape_of(cls, qualified_name(cls))
        if shape is None:
            return []
        self._add(shape, step)
        return list(_hints(cls))

    def _add(self, shape: Shape, step: str) -> None:
        other = self._by_name.get(shape.name)
        if other is not None and other.cls is not shape.cls:
            raise SerializationError(
                f"step {step!r}: two different classes are called {shape.name}; a snapshot could "
                f"not tell them apart: rename one of them"
            )
        self._by_class[shape.cls] = self._by_name[shape.name] = shape


def advice(cls: type) -> str:
    """Say why a value of a class that was not declared cannot be written, and the remedy."""
    name = cls.__qualname__
    if issubclass(cls, BaseException):
        return f"a snapshot cannot hold an exception ({name}); keep its type name and text instead"
    if shape_of(cls, name) is not None:
        return (
            f"class {qualified_name(cls)} is not declared; declare it in an annotation of the "
            f"step's function, or pass Job(types=[{name}])"
        )
    return (
        f"class {qualified_name(cls)} is not a data class; use a dataclass, or register an "
        f"encode/decode pair: Job(types=[sc.codec({name}, encode, decode)])"
    )


def _is_opaque(annotation: Any) -> bool:
    """An ordinary class of somebody's: no builtin, interface or generic form."""
    return (
        isinstance(annotation, type)
        and not typing.get_args(annotation)
        and annotation.__module__ not in ("builtins", "typing", "collections.abc")
        and not inspect.isabstract(annotation)
        and not getattr(annotation, "_is_protocol", False)
        and not typing.is_typeddict(annotation)
        and abc.ABC not in annotation.__bases__
        and builtin_shape(annotation) is None
    )


def _inside(annotation: Any) -> list[Any]:
    """Annotations and classes that `annotation` is made of."""
    if isinstance(annotation, list | tuple):  # the parameters of a Callable
        return list(annotation)
    if isinstance(annotation, TypeVar):
        return [annotation.__bound__, *annotation.__constraints__]
    found = [
        getattr(annotation, "__supertype__", None),  # of a NewType
        getattr(annotation, "__value__", None) if not isinstance(annotation, type) else None,
    ]
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return [type(value) for value in typing.get_args(annotation)]
    if origin is typing.Annotated:
        return [typing.get_args(annotation)[0]]
    return [*found, origin, *typing.get_args(annotation)]


def _hints(annotated: Any) -> Iterator[Any]:
    """The annotations of a function or class, those that can be resolved."""
    names = _local_names(annotated)
    try:
        yield from typing.get_type_hints(annotated, localns=names, include_extras=True).values()
        return
    except Exception:  # a foreign annotation may raise anything when evaluated
        pass
    for owner in getattr(annotated, "__mro__", (annotated,)):
        for text in _own_annotations(owner):
            yield from _resolved(text, _scope(owner), names or {})


def _own_annotations(owner: Any) -> list[Any]:
    if isinstance(owner, type) or callable(owner):
        return list(inspect.get_annotations(owner).values())
    return []


def _scope(owner: Any) -> dict[str, Any]:
    """The names of the module that `owner` was defined in."""
    found: dict[str, Any] | None = getattr(owner, "__globals__", None)
    return vars(sys.modules.get(owner.__module__, types)) if found is None else found


def _local_names(annotated: Any) -> dict[str, Any] | None:
    """What a function sees of the functions around it; annotations may name classes there."""
    code, cells = getattr(annotated, "__code__", None), getattr(annotated, "__closure__", None)
    if code is None or not cells:
        return None
    return {
        name: cell.cell_contents
        for name, cell in zip(code.co_freevars, cells, strict=True)
        if cell != types.CellType()
    }


def _resolved(text: Any, scope: dict[str, Any], names: dict[str, Any]) -> Iterator[Any]:
    if not isinstance(text, str):
        yield text
        return
    try:
        yield eval(text, scope, names)  # what typing.get_type_hints does, one by one
    except Exception:  # as above; the value is refused when it is written
        return
