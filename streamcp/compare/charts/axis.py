"""What an axis says: its label, whether it is logarithmic, and how its values are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Text = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Axis:
    """`label` says what is shown in which way; `text` writes a value with its unit."""

    label: str
    text: Text
    log: bool = False


def duration(seconds: float) -> str:
    """Write seconds with two digits, which is what can be read off a figure."""
    if seconds >= 0.995:
        return f"{short(seconds)} s"
    if seconds >= 0.000995:
        return f"{short(seconds * 1e3)} ms"
    return f"{short(seconds * 1e6)} µs" if seconds else "0"


def size(count: float) -> str:
    """Write bytes with two digits."""
    for unit, weight in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.995 * weight:
            return f"{short(count / weight)} {unit}"
    return f"{count:.0f} B"


def number(value: float) -> str:
    """Write a number as it is, with separators."""
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:g}"


def short(value: float) -> str:
    """Two digits; whole numbers of more digits stay without an exponent."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"
