"""Taking apart JSON that may be damaged or hostile.

Invariant: whatever the bytes hold, the only error is `CheckpointDamaged`, which names the file and
the field; never a KeyError or TypeError. It does not know what the fields mean.
"""

from __future__ import annotations

from typing import Any, TypeVar

import orjson

from streamcp.errors import CheckpointDamaged

T = TypeVar("T")


class Fields:
    """A JSON object of which every field must have the type that is asked for."""

    def __init__(self, value: object, place: str) -> None:
        """Take `value`, found at `place` (the file, then the field as a path)."""
        if not isinstance(value, dict):
            raise CheckpointDamaged(f"{place} is damaged: it is not a JSON object")
        self._value: dict[str, Any] = value
        self._place = place

    @classmethod
    def parse(cls, raw: bytes, place: str) -> Fields:
        """Parse the JSON object `raw`."""
        try:
            return cls(orjson.loads(raw), place)
        except orjson.JSONDecodeError as error:
            raise CheckpointDamaged(f"{place} is damaged: no valid JSON ({error})") from error

    def refuse(self, name: str, problem: str) -> CheckpointDamaged:
        """Make the error that field `name` has a `problem`."""
        return CheckpointDamaged(f"{self._place} is damaged: field {name!r} {problem}")

    def _get(self, name: str, kind: type[T], word: str) -> T:
        value = self._value.get(name)
        # bool is an int to Python, but not to anyone who reads a manifest
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.refuse(name, f"is not {word}")
        return value

    def text(self, name: str) -> str:
        """Take a string."""
        return self._get(name, str, "a string")

    def optional_text(self, name: str) -> str | None:
        """Take a string, or None where it is null or missing."""
        return None if self._value.get(name) is None else self.text(name)

    def choice(self, name: str, choices: tuple[T, ...]) -> T:
        """Take one of `choices`."""
        for choice in choices:
            if self._value.get(name) == choice:
                return choice
        raise self.refuse(name, f"is none of {', '.join(map(str, choices))}")

    def integer(self, name: str, minimum: int = 0, absent: int | None = None) -> int:
        """Take an integer of at least `minimum`; `absent` stands for a field that is not there."""
        if absent is not None and name not in self._value:
            return absent
        value = self._get(name, int, "an integer")
        if value < minimum:
            raise self.refuse(name, f"is below {minimum}")
        return value

    def number(self, name: str) -> float:
        """Take a number, integer or not."""
        value = self._value.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refuse(name, "is not a number")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """Take a number or null."""
        return None if self._value.get(name) is None else self.number(name)

    def boolean(self, name: str, absent: bool | None = None) -> bool:
        """Take true or false; `absent` stands for a field that is not there."""
        if absent is not None and name not in self._value:
            return absent
        return self._get(name, bool, "true or false")

    def mapping(self, name: str) -> dict[str, Any]:
        """Take a JSON object as it is."""
        return self._get(name, dict, "a JSON object")

    def nested(self, name: str) -> Fields:
        """Take a JSON object to be taken apart."""
        return Fields(self._value.get(name), f"{self._place}, field {name!r}")

    def numbers(self, name: str) -> dict[str, float]:
        """Take a JSON object whose values are numbers."""
        inner = self.nested(name)
        return {key: inner.number(key) for key in self.mapping(name)}

    def each(self, name: str) -> list[Fields]:
        """Take a list of JSON objects to be taken apart."""
        values = self._get(name, list, "a list")
        return [
            Fields(value, f"{self._place}, field '{name}[{index}]'")
            for index, value in enumerate(values)
        ]

    def mappings(self, name: str) -> tuple[dict[str, Any], ...]:
        """Take a list of JSON objects as they are."""
        return tuple(fields._value for fields in self.each(name))

    def texts(self, name: str) -> tuple[str, ...]:
        """Take a list of strings."""
        values = self._get(name, list, "a list")
        if not all(isinstance(value, str) for value in values):
            raise self.refuse(name, "is not a list of strings")
        return tuple(values)

    def integers(self, name: str) -> tuple[int, ...]:
        """Take a list of integers, none below 0."""
        values = self._get(name, list, "a list")
        if not all(type(value) is int and value >= 0 for value in values):
            raise self.refuse(name, "is not a list of integers, 0 or more")
        return tuple(values)

    def lists_of_integers(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Take a list of lists of integers, none below 0."""
        values = self._get(name, list, "a list")
        for one in values:
            if type(one) is not list or not all(type(n) is int and n >= 0 for n in one):
                raise self.refuse(name, "is not a list of lists of integers, 0 or more")
        return tuple(map(tuple, values))
