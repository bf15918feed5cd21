"""The pictures of the operators page: what goes into an operator, and what comes out.

    python -m tests.docs.operator_pictures      draws all of them anew

A picture is declared in a comment above its image, so that the page and its pictures cannot say
different things. A line that begins with a word is a lane, an indented one is the operator:

    in      1@0 2@1 3@2
            map(lambda n: n * 10)
    out     10@0 20@1 30@2

`text@x` is a record at x, `text@x-y` one whose call lasts from x to y, `text@x#b` one of the second
colour, `[x-y]` a window. `_` stands for a space. A lane in parentheses is inside the operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/operators.md"
IMAGES = PAGE.parent / "images"

WIDTH, LEFT, RIGHT = 720, 96, 684
LANE, BOX, MARGIN = 46, 40, 14
_LETTER, _PILL = 7.3, 24

_COMMENT = re.compile(r"^<!-- picture ([\w-]+)\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_RECORD = re.compile(r"(?P<text>[^@\s]*)@(?P<x>[\d.]+)(-(?P<to>[\d.]+))?(#(?P<colour>[abc]))?$")
_WINDOW = re.compile(r"\[(?P<x>[\d.]+)-(?P<to>[\d.]+)\]$")

_STYLE = """
  .bg { fill: #ffffff; stroke: #d0d7de }
  .t { font: 12px ui-monospace, 'DejaVu Sans Mono', monospace; fill: #1f2328 }
  .s { font: 12px system-ui, 'DejaVu Sans', sans-serif; fill: #59636e }
  .m { text-anchor: middle } .e { text-anchor: end }
  .op { fill: #f6f8fa; stroke: #59636e; stroke-width: 1.2 }
  .line { stroke: #8c959f; stroke-width: 1.4; fill: none }
  .a { fill: #ddf4ff; stroke: #0969da } .b { fill: #fff1e5; stroke: #bc4c00 }
  .c { fill: #fbefff; stroke: #8250df }
  .window { fill: none; stroke: #8c959f; stroke-dasharray: 4 3 }
  .call { stroke-width: 5; opacity: 0.5 }
  @media (prefers-color-scheme: dark) {
    .bg { fill: #0d1117; stroke: #3d444d }
    .t { fill: #f0f6fc } .s { fill: #9198a1 }
    .op { fill: #212830; stroke: #9198a1 } .line { stroke: #656c76 }
    .a { fill: #0c2d6b; stroke: #79c0ff } .b { fill: #5a1e02; stroke: #ffa657 }
    .c { fill: #3c1e70; stroke: #d2a8ff }
    .window { stroke: #656c76 }
  }
"""


@dataclass(frozen=True)
class Mark:
    """Something on a lane: a record or a window at `x`, perhaps up to `to`."""

    kind: str
    text: str
    x: float
    to: float | None = None
    colour: str = "a"


@dataclass(frozen=True)
class Lane:
    """A stream: its name, and what is on it."""

    name: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Picture:
    """One operator: its lanes and boxes from top to bottom; a box is its text."""

    name: str
    rows: tuple[Lane | str, ...]

    @property
    def inputs(self) -> list[str]:
        """The texts of the records above the first operator."""
        return _texts(self.rows[: self._first_box])

    @property
    def outputs(self) -> list[str]:
        """The texts of the records below the first operator: all that is printed."""
        return _texts(self.rows[self._first_box :])

    @property
    def _first_box(self) -> int:
        return next(i for i, row in enumerate(self.rows) if isinstance(row, str))


def _texts(rows: Sequence[Lane | str]) -> list[str]:
    lanes = [row for row in rows if isinstance(row, Lane) and not row.name.startswith("(")]
    return [mark.text for lane in lanes for mark in lane.marks if mark.kind == "record"]


def pictures(page: str) -> list[Picture]:
    """The pictures that a page declares; raises ValueError for what is not a mark."""
    return [
        Picture(name, tuple(_row(line) for line in body.splitlines() if line.strip()))
        for name, body in _COMMENT.findall(page)
    ]


def _row(line: str) -> Lane | str:
    if line.startswith(" "):
        return line.strip()
    name, *marks = line.split()
    return Lane(name.replace("_", " "), tuple(map(_mark, marks)))


def _mark(token: str) -> Mark:
    if found := _WINDOW.match(token):
        return Mark("window", "", float(found["x"]), float(found["to"]))
    found = _RECORD.match(token)
    if found is None:
        raise ValueError(f"not a mark: {token!r}")
    text = found["text"].replace("_", " ")
    to = float(found["to"]) if found["to"] else None
    return Mark("record", text, float(found["x"]), to, found["colour"] or "a")


def draw(picture: Picture) -> str:
    """The picture as SVG; raises ValueError if records of a lane overlap."""
    scale = _Scale(picture)
    y = float(MARGIN)
    parts: list[str] = []
    for row in picture.rows:
        if isinstance(row, str):
            parts += _box(row, y)
            y += BOX
        else:
            parts += _lane(row, scale, y + LANE / 2)
            y += LANE
    height = round(y + MARGIN)
    return "\n".join([*_head(picture, height), *parts, "</svg>", ""])


class _Scale:
    """Where the positions of a picture are, in pixels."""

    def __init__(self, picture: Picture) -> None:
        marks = [m for row in picture.rows if isinstance(row, Lane) for m in row.marks]
        ends = [end for mark in marks for end in (mark.x, mark.to) if end is not None]
        self._margin = 8 + max(_width(mark) for mark in marks) / 2
        self._first = min(ends)
        room = RIGHT - LEFT - 2 * self._margin
        self._unit = room / ((max(ends) - self._first) or 1)

    def __call__(self, x: float) -> float:
        return LEFT + self._margin + (x - self._first) * self._unit


def _head(picture: Picture, height: int) -> list[str]:
    said = "; ".join(
        row if isinstance(row, str) else f"{row.name}: {' '.join(m.text for m in row.marks)}"
        for row in picture.rows
    )
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(picture.name)}</title>',
        f'<desc id="desc">{escape(said)}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="bg" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
    ]


def _box(text: str, y: float) -> list[str]:
    middle = (LEFT + RIGHT) / 2
    return [
        f'<rect class="op" x="{LEFT}" y="{y + 6:g}" width="{RIGHT - LEFT}" '
        f'height="{BOX - 12}" rx="6"/>',
        f'<text class="t m" x="{middle:g}" y="{y + BOX / 2 + 4:g}">{escape(text)}</text>',
    ]


def _lane(lane: Lane, scale: _Scale, y: float) -> Iterator[str]:
    _check_apart(lane, scale)
    yield f'<text class="s e" x="{LEFT - 12}" y="{y + 4:g}">{escape(lane.name)}</text>'
    yield f'<path class="line" d="M{LEFT} {y:g} H{RIGHT} m-7 -4 l7 4 l-7 4"/>'
    for mark in sorted(lane.marks, key=lambda mark: mark.kind == "record"):
        yield from _DRAWN[mark.kind](mark, scale, y)


def _check_apart(lane: Lane, scale: _Scale) -> None:
    spans = sorted(
        (scale(mark.x) - _width(mark) / 2, scale(mark.x) + _width(mark) / 2, mark.text)
        for mark in lane.marks
        if mark.kind == "record"
    )
    for (_, end, one), (start, _, other) in pairwise(spans):
        if end > start:
            raise ValueError(f"{one!r} and {other!r} overlap on {lane.name!r}")


def _width(mark: Mark) -> float:
    return max(_PILL, len(mark.text) * _LETTER + 14)


def _record(mark: Mark, scale: _Scale, y: float) -> Iterator[str]:
    x, width = scale(mark.x), _width(mark)
    if mark.to is not None:
        yield f'<path class="call {mark.colour}" d="M{x:.1f} {y:g} H{scale(mark.to):.1f}"/>'
    yield (
        f'<rect class="{mark.colour}" x="{x - width / 2:.1f}" y="{y - _PILL / 2:g}" '
        f'width="{width:.1f}" height="{_PILL}" rx="{_PILL / 2:g}"/>'
    )
    yield f'<text class="t m" x="{x:.1f}" y="{y + 4:g}">{escape(mark.text)}</text>'


def _window(mark: Mark, scale: _Scale, y: float) -> Iterator[str]:
    assert mark.to is not None
    x, to = scale(mark.x), scale(mark.to)
    yield (
        f'<rect class="window" x="{x + 2:.1f}" y="{y - 18:g}" '
        f'width="{to - x - 4:.1f}" height="36" rx="5"/>'
    )


_DRAWN = {"record": _record, "window": _window}


def main() -> None:
    """Draw all pictures of the page."""
    for picture in pictures(PAGE.read_text(encoding="utf-8")):
        file = IMAGES / f"{picture.name}.svg"
        file.write_text(draw(picture), encoding="utf-8")


if __name__ == "__main__":
    main()
