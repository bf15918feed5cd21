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
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from streamcp.serialization.taking import (
    CACHED_HASH,
    Take,
    TakeColumns,
    UnwritableError,
    are_plain,
    columns_beside_dict,
    columns_by,
    getter_of,
    take_attributes,
    take_beside_dict,
)

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


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """One class a snapshot may hold. `defaults` has a factory for each field with a default;
    `take_columns` is what takes many instances apart faster than `take` one by one."""

    cls: type
    name: str
    kind: str
    fields: tuple[str, ...]
    take: Take
    make: Make
    defaults: dict[str, Callable[[], Any]] = dataclasses.field(default_factory=dict)
    take_columns: TakeColumns | None = None

    def columns(self, values: Sequence[Any]) -> Sequence[list[Any]]:
        """Take instances apart: a list per field, of the value in each of them."""
        return (self.take_columns or columns_by(self.take))(values)


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
    if slots - set(fields) - {CACHED_HASH} and kind != "attrs":
        return None  # a slot that is no field would be lost
    take, columns = take_attributes(cls, fields), None
    if slots.isdisjoint(fields) and not _overrides(cls, "__getattribute__"):
        make = _make_with_dict(cls, fields)
        if are_plain(fields):
            take = take_beside_dict(cls, fields)
            columns = columns_beside_dict(cls, fields, take)
    else:
        make = _make_with_slots(cls, fields)
    return Shape(cls, name, kind, fields, take, _resetting_hash(cls, make), defaults, columns)


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


def _make_with_dict(cls: type, fields: tuple[str, ...]) -> Make:
    """Written out field by field: a loop over the names takes three times as long, and a restore
    makes millions."""
    # Attributes take less memory than a dict, which an instance gets only when it is asked for; but
    # setting one may run code of the class, or be refused by it.
    plain = not _overrides(cls, "__setattr__") and are_plain(fields)
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
    if code is None or CACHED_HASH not in code.co_names:
        return make

    def make_unhashed(values: Sequence[Any]) -> Any:
        instance = make(values)
        object.__setattr__(instance, CACHED_HASH, None)
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

    return Shape(cls, name, kind, fields, take_attributes(cls, fields), make, defaults)


def _model_shape(cls: Any, name: str, kind: str) -> Shape:
    """A pydantic model: its fields, then which of them were set, extra and private values."""
    fields = tuple(cls.__pydantic_fields__)
    defaults: dict[str, Callable[[], Any]] = {}
    for field, info in cls.__pydantic_fields__.items():
        if not info.is_required():
            defaults[field] = functools.partial(info.get_default, call_default_factory=True)
    getter = getter_of(operator.attrgetter, fields)

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
