"""How the values of fields are read from instances, without giving these a `__dict__`.

CPython keeps the attributes of an instance beside it until somebody asks for its `__dict__`. From
then on it takes twice the memory, and the user's code three times as long for each attribute, for
good. What an instance refers to, its attributes in their order and then its class, tells as surely
whether it holds its fields and nothing else; where it tells anything else, the dict is asked.
"""

from __future__ import annotations

import functools
import gc
import inspect
import keyword
import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias

Take: TypeAlias = Callable[[Any], tuple[Any, ...]]
"""An instance to the values of its fields."""
TakeColumns: TypeAlias = Callable[[Sequence[Any]], Sequence[list[Any]]]
"""Instances to a list per field, of the value in each of them."""

CACHED_HASH: Final = "_attrs_cached_hash"


class UnwritableError(Exception):
    """A value cannot be written; the text says why and what to do, without naming the step."""


def columns_by(take: Take) -> TakeColumns:
    """Take one instance after the other."""
    return lambda values: transposed(map(take, values))


def transposed(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """A list per field of what was taken of many instances."""
    return [*map(list, zip(*rows, strict=True))]


def getter_of(make: Any, fields: Sequence[str]) -> Take:
    """A getter that returns a tuple also for one field and for none."""
    if not fields:
        return lambda _: ()
    if len(fields) > 1:
        return make(*fields)  # type: ignore[no-any-return]
    get_one = make(*fields)
    return lambda value: (get_one(value),)


def take_attributes(cls: type, fields: Sequence[str]) -> Take:
    """Read attributes wherever they are. Raises UnwritableError for an instance that lacks one, or
    holds another that would be lost."""
    getter, known = getter_of(operator.attrgetter, fields), {*fields, CACHED_HASH}

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


def take_beside_dict(cls: type, fields: Sequence[str]) -> Take:
    """The same for a class whose instances hold all their fields as plain attributes, which
    `are_plain`. Written out field by field: the first to change a state behind the cut of a
    checkpoint waits for it."""
    numbers = range(len(fields))
    values, held = ("".join(f"{letter}{n}, " for n in numbers) for letter in "vh")
    same = " and ".join([*(f"h{n} is v{n}" for n in numbers), "last is cls"])
    take: Take = _compiled(
        f"""def take(value):
    try:
        {"; ".join(f"v{n} = value.{field}" for n, field in enumerate(fields)) or "pass"}
        {held}last, = get_referents(value)
    except (AttributeError, ValueError):
        return careful(value)
    return ({values}) if {same} else careful(value)
""",
        cls,
        take_attributes(cls, fields),
    )
    return take


def columns_beside_dict(cls: type, fields: Sequence[str], take_one: Take) -> TakeColumns:
    """The same of many instances at once; one by one by `take_one` where any of them differs, so
    that only those that do are asked for their dict."""
    count = len(fields) + 1
    columns = [f"[value.{field} for value in values]" for field in fields]
    same = [f"all(map(is_, held[{n}::{count}], columns[{n}]))" for n in range(len(fields))]
    same.append(f"all(map(is_, held[{count - 1}::{count}], repeat(cls, len(values))))")
    take: TakeColumns = _compiled(
        f"""def take(values):
    try:
        columns = [{", ".join(columns)}]
    except AttributeError:
        return careful(values)
    held = get_referents(*values)
    if len(held) == {count} * len(values) and {" and ".join(same)}:
        return columns
    return careful(values)
""",
        cls,
        columns_by(take_one),
    )
    return take


def _compiled(source: str, cls: type, careful: Any) -> Any:
    made: dict[str, Any] = {
        "careful": careful,
        "cls": cls,
        "get_referents": gc.get_referents,
        "is_": operator.is_,
        "repeat": repeat,
    }
    exec(compile(source, f"<taking of {cls.__qualname__}>", "exec"), made)
    return made["take"]


def are_plain(fields: Sequence[str]) -> bool:
    """Say whether fields can be written as attributes."""
    return all(field.isidentifier() and not keyword.iskeyword(field) for field in fields)
