"""How instances of a data class are taken apart and put together again (rule P37).

A `Shape` fills fields directly: no `__init__`, `__post_init__`, validator, `__new__`,
`__setstate__` or `__reduce__` of the class ever runs. attrs, msgspec and pydantic are recognized
by the marks they leave on a class and never imported. Knows nothing of bytes and numbers.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import keyword
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

Take: TypeAlias = Callable[[Any], tuple[Any, ...]]
"""An instance to the values of its fields."""
Make: TypeAlias = Callable[[Sequence[Any]], Any]
"""Values of the fields to an instance; ValueError if their number is wrong."""

_FOREIGN_BASES: Final = (
    BaseException, type, types.ModuleType,
    dict, list, set, frozenset, tuple, int, float, complex, str, bytes, bytearray,
)  # fmt: skip
_PYDANTIC_EXTRAS: Final = (
    "__pydantic_fields_set__",
    "__pydantic_extra__",
    "__pydantic_private__",
)
_CACHED_HASH: Final = "_attrs_cached_hash"


class UnwritableError(Exception):
    """A value cannot be written; the text says why and what to do, without naming the step."""


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """One class a snapshot may hold. `defaults` has a factory for each field with a default."""

    cls: type
    name: str
    kind: str
    fields: tuple[str, ...]
    take: Take
    make: Make
    defaults: dict[str, Callable[[], Any]] = dataclasses.field(default_factory=dict)


def shape_of(cls: type, name: str) -> Shape | None:
    """Describe `cls`, to be recorded as `name`; None if it is not a data class."""
    if issubclass(cls, enum.Enum):
        return _flag_shape(cls, name) if issubclass(cls, enum.Flag) else _enum_shape(cls, name)
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return _named_tuple_shape(cls, name)
    if issubclass(cls, _FOREIGN_BASES):
        return None
    for kind, mark, describe in _KINDS:
        if hasattr(cls, mark):
            return describe(cls, name, kind)
    return None


def _enum_shape(cls: type[enum.Enum], name: str) -> Shape:
    def make(values: Sequence[Any]) -> Any:
        (member,) = values
        try:
            return cls.__members__[member]
        except KeyError:
            raise ValueError(f"{name} has no member {member!r} (any more)") from None

    return Shape(cls, name, "enum", ("name",), lambda member: (member._name_,), make)


def _flag_shape(cls: type[enum.Flag], name: str) -> Shape:
    """A flag goes by the names of its members, since a combination has no name of its own."""

    def take(flag: Any) -> tuple[Any, ...]:
        names = tuple(member.name for member in flag)
        if make((names,)) != flag:
            raise UnwritableError(f"{name}: {flag!r} has bits that no member names")
        return (names,)

    def make(values: Sequence[Any]) -> Any:
        (names,) = values
        return functools.reduce(operator.or_, (cls.__members__[one] for one in names), cls(0))

    return Shape(cls, name, "flag", ("members",), take, make)


def _named_tuple_shape(cls: Any, name: str) -> Shape:
    fields = tuple(cls._fields)
    count = len(fields)

    def make(values: Sequence[Any]) -> Any:
        if len(values) != count:
            raise ValueError(f"{len(values)} values for the {count} fields of {name}")
        return tuple.__new__(cls, values)

    return Shape(cls, name, "namedtuple", fields, tuple, make, _constants(cls._field_defaults))


def _constants(defaults: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    return {name: functools.partial(_same, value) for name, value in defaults.items()}


def _same(value: Any) -> Any:
    return value


def _dataclass_shape(cls: Any, name: str, kind: str) -> Shape | None:
    found = dataclasses.fields(cls)
    defaults = _constants(
        {field.name: field.default for field in found if field.default is not dataclasses.MISSING}
    )
    for field in found:
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory
    return _plain_shape(cls, name, kind, tuple(field.name for field in found), defaults)


def _attrs_shape(cls: Any, name: str, kind: str) -> Shape | None:
    defaults: dict[str, Callable[[], Any]] = {}
    for field in cls.__attrs_attrs__:
        factory = getattr(field.default, "factory", None)
        if factory is None and "NOTHING" not in repr(field.default):
            defaults[field.name] = functools.partial(_same, field.default)
        elif factory is not None and not field.default.takes_self:
            defaults[field.name] = factory
    names = tuple(field.name for field in cls.__attrs_attrs__)
    return _plain_shape(cls, name, kind, names, defaults)


def _plain_shape(
    cls: type, name: str, kind: str, fields: tuple[str, ...], defaults: dict[str, Any]
) -> Shape | None:
    """Fields live in the instance's dict, in slots, or some here and some there."""
    slots = _slots(cls)
    if any(_is_property(cls, field) for field in fields):
        return None
    if slots - set(fields) - {_CACHED_HASH} and kind != "attrs":
        return None  # a slot that is no field would be lost
    if slots.isdisjoint(fields) and not _overrides(cls, "__getattribute__"):
        take, make = _take_from_dict(cls, fields), _make_with_dict(cls, fields)
    else:
        take, make = _take_attributes(cls, fields), _make_with_slots(cls, fields)
    return Shape(cls, name, kind, fields, take, _resetting_hash(cls, make), defaults)


def _overrides(cls: type, name: str) -> bool:
    return any(name in vars(base) for base in cls.__mro__[:-1])


def _slots(cls: type) -> set[str]:
    return {
        name
        for base in cls.__mro__
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    }


def _is_property(cls: type, name: str) -> bool:
    """Writing such a field would run code of the class."""
    found = inspect.getattr_static(cls, name, None)
    return hasattr(type(found), "__set__") and not isinstance(found, types.MemberDescriptorType)


def _take_from_dict(cls: type, fields: tuple[str, ...]) -> Take:
    getter, count = _getter(operator.itemgetter, fields), len(fields)
    careful = _take_attributes(cls, fields)

    def take(value: Any) -> tuple[Any, ...]:
        values = value.__dict__
        if len(values) == count:
            try:
                return getter(values)
            except KeyError:
                pass  # the class holds the value, and the instance something else
        return careful(value)

    return take


def _getter(make: Any, fields: tuple[str, ...]) -> Take:
    """A getter that returns a tuple also for one field and for none."""
    if not fields:
        return lambda _: ()
    if len(fields) > 1:
        return make(*fields)  # type: ignore[no-any-return]
    get_one = make(*fields)
    return lambda value: (get_one(value),)


def _take_attributes(cls: type, fields: tuple[str, ...]) -> Take:
    getter, known = _getter(operator.attrgetter, fields), {*fields, _CACHED_HASH}

    def take(value: Any) -> tuple[Any, ...]:
        for name in getattr(value, "__dict__", {}).keys() - known:
            _check_recomputed(cls, name)
        try:
            return getter(value)
        except AttributeError as error:
            raise UnwritableError(f"a {cls.__qualname__} lacks a field: {error}") from error

    return take


def _check_recomputed(cls: type, name: str) -> None:
    if not isinstance(inspect.getattr_static(cls, name, None), functools.cached_property):
        raise UnwritableError(
            f"a {cls.__qualname__} holds the attribute {name!r}, which is no field and would be "
            f"lost; make it a field or a functools.cached_property"
        )


def _make_with_dict(cls: type, fields: tuple[str, ...]) -> Make:
    """Written out field by field: a loop over the names takes three times as long, and a restore
    makes millions."""
    # Attributes take less memory than a dict, which an instance gets only when it is asked for; but
    # setting one may run code of the class, or be refused by it.
    plain = not _overrides(cls, "__setattr__") and all(map(_is_name, fields))
    form = "instance.{}, " if plain else "instance.__dict__[{!r}], "
    targets = "".join(map(form.format, fields))
    source = (
        "def make(values):\n"
        "    instance = new(cls)\n"
        f"    ({targets}) = values\n"
        "    return instance\n"
    )
    made: dict[str, Any] = {"new": object.__new__, "cls": cls}
    exec(compile(source, f"<making of {cls.__qualname__}>", "exec"), made)
    make: Make = made["make"]
    return make


def _is_name(field: str) -> bool:
    return field.isidentifier() and not keyword.iskeyword(field)


def _make_with_slots(cls: type, fields: tuple[str, ...]) -> Make:
    new, fill = object.__new__, object.__setattr__

    def make(values: Sequence[Any]) -> Any:
        instance: Any = new(cls)
        for name, value in zip(fields, values, strict=True):
            fill(instance, name, value)
        return instance

    return make


def _resetting_hash(cls: type, make: Make) -> Make:
    """An attrs class can keep the hash in the instance, and expects the place for it to exist."""
    code = getattr(cls.__hash__, "__code__", None)
    if code is None or _CACHED_HASH not in code.co_names:
        return make

    def make_unhashed(values: Sequence[Any]) -> Any:
        instance = make(values)
        object.__setattr__(instance, _CACHED_HASH, None)
        return instance

    return make_unhashed


def _struct_shape(cls: Any, name: str, kind: str) -> Shape | None:
    """A Struct's own constructor only stores, except that it calls `__post_init__`: then an
    instance of an empty subclass is made and becomes one of the class."""
    fields: tuple[str, ...] = cls.__struct_fields__
    defaults: dict[str, Callable[[], Any]] = {}
    tail = fields[len(fields) - len(cls.__struct_defaults__) :]
    for field, default in zip(tail, cls.__struct_defaults__, strict=True):
        if type(default).__name__ == "Factory":
            defaults[field] = default.factory
        elif type(default).__name__ != "NoDefault" and "NODEFAULT" not in repr(default):
            defaults[field] = functools.partial(_same, default)
    bare = cls
    if hasattr(cls, "__post_init__"):
        bare = type(cls)(cls.__name__, (cls,), {"__post_init__": lambda _: None})
    become = vars(object)["__class__"].__set__

    def make(values: Sequence[Any]) -> Any:
        instance = bare(**dict(zip(fields, values, strict=True)))
        if bare is not cls:
            become(instance, cls)
        return instance

    return Shape(cls, name, kind, fields, _take_attributes(cls, fields), make, defaults)


def _model_shape(cls: Any, name: str, kind: str) -> Shape:
    """A pydantic model: its fields, then which of them were set, extra and private values."""
    fields = tuple(cls.__pydantic_fields__)
    defaults: dict[str, Callable[[], Any]] = {}
    for field, info in cls.__pydantic_fields__.items():
        if not info.is_required():
            defaults[field] = functools.partial(info.get_default, call_default_factory=True)
    getter = _getter(operator.attrgetter, fields)

    def take(model: Any) -> tuple[Any, ...]:
        return (*getter(model), *(_model_extra(model, extra) for extra in _PYDANTIC_EXTRAS))

    def make(values: Sequence[Any]) -> Any:
        model = object.__new__(cls)
        *plain, _, _, _ = values
        object.__setattr__(model, "__dict__", dict(zip(fields, plain, strict=True)))
        for extra, value in zip(_PYDANTIC_EXTRAS, values[-3:], strict=True):
            object.__setattr__(model, extra, value)
        return model

    return Shape(cls, name, kind, fields + _PYDANTIC_EXTRAS, take, make, defaults)


def _model_extra(model: Any, name: str) -> Any:
    value = getattr(model, name, None)
    if name != "__pydantic_private__" or value is None:
        return value
    return {k: v for k, v in value.items() if type(v).__name__ != "PydanticUndefinedType"}


_KINDS: Final[tuple[tuple[str, str, Callable[[Any, str, str], Shape | None]], ...]] = (
    ("dataclass", "__dataclass_fields__", _dataclass_shape),
    ("attrs", "__attrs_attrs__", _attrs_shape),
    ("msgspec", "__struct_fields__", _struct_shape),
    ("pydantic", "__pydantic_fields__", _model_shape),
)
