"""The colours of all figures, and what a page needs to show them: light, dark and printed.

A figure is drawn in the light colours; in the text of the SVG each is replaced by the variable of
its name. So no two may have the same value. Modes are told apart also by the colour-blind
(Okabe and Ito), and always by marker or place as well.
"""

from __future__ import annotations

import re
from typing import Final

LIGHT: Final = {
    "ink": "#1b1f24",
    "faint": "#5c6570",
    "rule": "#dfe3e8",
    "paper": "#fefefe",
    "bad": "#b00020",
    "aligned": "#0072b2",
    "unaligned": "#d55e00",
    "adaptive": "#009e73",
    "without": "#7d6a9c",
}
DARK: Final = {
    "ink": "#e4e8ec",
    "faint": "#9aa4af",
    "rule": "#323a43",
    "paper": "#12161b",
    "bad": "#ff8a94",
    "aligned": "#5ab4ec",
    "unaligned": "#ff9147",
    "adaptive": "#3ecf9f",
    "without": "#b9a7d8",
}
MARKERS: Final = {"aligned": "o", "unaligned": "^", "adaptive": "s"}
_NAMES = {value: name for name, value in LIGHT.items()}
_HEX = re.compile(r"#[0-9a-f]{6}\b")


def named(svg: str) -> str:
    """Replace the colours in the text of an SVG by their names."""
    return _HEX.sub(_name, svg)


def _name(found: re.Match[str]) -> str:
    """Raises KeyError for a colour that no page could change."""
    return f"var(--{_NAMES[found[0]]})"


def variables(colours: dict[str, str]) -> str:
    """Write the values of the names as CSS declarations."""
    return "; ".join(f"--{name}: {value}" for name, value in colours.items())


def style(selector: str = ":root") -> str:
    """Give the CSS that defines the colours, also for a dark page; print is light."""
    return (
        f"{selector} {{ {variables(LIGHT)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ {selector} {{ {variables(DARK)} }} }}"
    )
