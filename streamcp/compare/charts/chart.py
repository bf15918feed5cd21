"""A chart: one figure in a wide and a narrow rendition, for a page or as a file of its own."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass

from streamcp.compare.charts import colours
from streamcp.compare.charts.canvas import Sheet

WIDE, NARROW = 880.0, 358.0

Draw = Callable[[float], Sheet]
"""Draws for a page of that width."""

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_OPENING = re.compile(r"<svg [^>]*viewBox=\"([^\"]+)\"[^>]*>")
_ID = re.compile(r'\s+id="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Chart:
    """`title` says what is seen, `description` the same in words for those who cannot see it.

    `name` is unique on a page: it begins the ids."""

    name: str
    title: str
    description: str
    wide: str
    narrow: str

    def inline(self) -> str:
        """Give both renditions for an HTML page, whose CSS shows one of them."""
        return self._opened(self.wide, "wide") + self._opened(self.narrow, "narrow")

    def standalone(self) -> str:
        """Give the wide rendition as an SVG file, light or dark as its reader likes."""
        style = (
            f"<style>{colours.style('svg')} svg {{ font-family: {_FONT}; "
            "background: var(--paper) } text { paint-order: stroke; stroke: var(--paper); "
            "stroke-width: 3px; stroke-linejoin: round }</style>"
        )
        opened = self._opened(self.wide, "file", style)
        size = 'xmlns="http://www.w3.org/2000/svg" width="{}" height="{}"'
        box = re.search(r'viewBox="0 0 (\S+) (\S+)"', opened)
        assert box is not None
        return opened.replace("<svg", f"<svg {size.format(box[1], box[2])}", 1) + "\n"

    def _opened(self, svg: str, kind: str, style: str = "") -> str:
        label = f"{self.name}-{kind}"
        opening = (
            f'<svg class="{kind}" viewBox="\\1" role="img" '
            f'aria-labelledby="{label}-title {label}-text">'
            f'<title id="{label}-title">{_escaped(self.title)}</title>'
            f'<desc id="{label}-text">{_escaped(self.description)}</desc>{style}'
        )
        return _OPENING.sub(opening, svg, count=1)


def chart(name: str, title: str, description: str, draw: Draw) -> Chart:
    """Draw a chart in both renditions."""
    return Chart(
        name,
        title,
        description,
        cleaned(draw(WIDE).as_svg(f"{name}-wide")),
        cleaned(draw(NARROW).as_svg(f"{name}-narrow")),
    )


def cleaned(svg: str) -> str:
    """Leave of a written SVG what a page needs: no fonts of its own, no names that nothing uses, no
    addresses; colours by their names."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;\"]*;?\s*", "", svg)
    svg = re.sub(r"font: ((?:\w+ )*)([\d.]+px) [^;\"]*", _font, svg)
    svg = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", svg)
    used = set(re.findall(r'(?:href="|url\()#([\w.-]+)', svg))
    svg = _ID.sub(lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)
    return colours.named(re.sub(r"\s*\n\s*", "\n", svg)).strip()


def _font(found: re.Match[str]) -> str:
    weight = "; font-weight: 600" if re.search("bold|700", found[1]) else ""
    return f"font-size: {found[2]}{weight}"


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)
