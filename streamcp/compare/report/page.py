"""The page of a report: HTML in one file, with no address of anything outside of it.

It is read on a screen of any width, light or dark, and on paper; without scripts everything can be
read but the buttons. The page knows nothing of what it shows.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from streamcp.compare.charts import colours
from streamcp.compare.report.figures import Shown


@dataclass(frozen=True, slots=True)
class PlainTable:
    """`columns` without that of the row names; a row without cells is a rule. Names that begin with
    spaces belong to the row above."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a report says, from the top: `headline` is the conclusion, `said` what belongs to it
    (each true or, if not, to be seen as wrong), `method` names and texts of how it was measured,
    `limits` what it does not tell."""

    title: str
    headline: Sequence[str]
    said: Sequence[tuple[str, bool]]
    figures: Sequence[Shown]
    tables: Sequence[PlainTable]
    method: Sequence[tuple[str, str]]
    limits: Sequence[str]
    data: Mapping[str, Any]

    def as_html(self) -> str:
        """Write the page."""
        parts = [
            f"<h1>{_text(self.title)}</h1>",
            *(f'<p class="headline">{_text(line)}</p>' for line in self.headline),
            *(_said(line, right=right) for line, right in self.said),
            *map(_figure, self.figures),
            *map(_table, self.tables),
            _method(self.method),
            _limits(self.limits),
            _DATA,
        ]
        body = "\n".join(parts)
        return _PAGE.format(
            title=_text(self.title), css=colours.style() + _CSS, body=body, data=_data(self.data)
        )


# Columns that stand nearer to each other.
_MANY = 5
_UNIT = re.compile(r"(?<=\d) (?=(?:µs|ms|s|min|h|B|kB|MB|GB|TB|%)\b|%)")


def _text(text: str) -> str:
    """A number and its unit stay on one line."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", html.escape(text, quote=False))


def _said(line: str, *, right: bool) -> str:
    kind = "right" if right else "wrong"
    return f'<p class="{kind}">{_text(line)}</p>'


def _figure(shown: Shown) -> str:
    chart = shown.chart
    return (
        f'<figure id="{chart.name}"><h2>{_text(chart.title)}</h2>\n'
        f'<div class="chart">{chart.inline()}</div>\n'
        f"<figcaption>{_text(shown.caption)}</figcaption></figure>"
    )


def _table(table: PlainTable) -> str:
    head = "".join(f'<th scope="col">{_text(one)}</th>' for one in table.columns)
    note = f'<p class="note">{_text(table.note)}</p>' if table.note else ""
    kind = ' class="many"' if len(table.columns) > _MANY else ""
    return (
        f'<section><h2>{_text(table.title)}</h2><div class="scroll"><table{kind}>'
        f"<thead><tr><td></td>{head}</tr></thead>\n"
        + "\n".join(f"<tbody>{''.join(map(_row, group))}</tbody>" for group in _groups(table.rows))
        + f"</table></div>{note}</section>"
    )


Cells = tuple[str, Sequence[str]]


def _groups(rows: Iterable[Cells]) -> list[list[Cells]]:
    groups: list[list[Cells]] = [[]]
    for row in rows:
        if row[1]:
            groups[-1].append(row)
        else:
            groups.append([])
    return groups


def _row(row: Cells) -> str:
    name, cells = row
    indented = ' class="part"' if name.startswith(" ") else ""
    told = "".join(f"<td>{_text(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row"{indented}>{_text(name.strip())}</th>{told}</tr>\n'


def _method(method: Sequence[tuple[str, str]]) -> str:
    told = "\n".join(f"<dt>{_text(name)}</dt><dd>{_text(text)}</dd>" for name, text in method)
    return f"<section><h2>How it was measured</h2><dl>{told}</dl></section>"


def _limits(limits: Sequence[str]) -> str:
    told = "\n".join(f"<li>{_text(one)}</li>" for one in limits)
    return f"<section><h2>What it does not tell</h2><ul>{told}</ul></section>"


def _data(data: Mapping[str, Any]) -> str:
    """As JSON that no reader of HTML takes for its end."""
    return orjson.dumps(data).replace(b"<", b"\\u003c").decode()


_DATA = """<section class="data"><h2>Data</h2>
<p>Every checkpoint, every sample and every count of every run is in this file, as JSON in the
element with the id <code>data</code>; it is that of <code>results.json</code>.</p>
<p><button type="button" id="download">Download results.json</button>
<button type="button" id="copy">Copy the JSON</button> <span id="done" role="status"></span></p>
</section>"""

_CSS = """
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif }
main { max-width: 944px; margin: 0 auto; padding: 40px 32px 72px }
h1 { font-size: 1.05rem; font-weight: 600; line-height: 1.4; margin: 0 0 1.4rem;
  color: var(--faint) }
h2 { font-size: 1.25rem; font-weight: 600; line-height: 1.3; margin: 0 0 .9rem }
p { margin: 0 0 .8rem; max-width: 46rem }
.headline { font-size: 1.4rem; line-height: 1.4; margin-bottom: 1rem; text-wrap: pretty }
.wrong { color: var(--bad); font-weight: 600 }
figure, section { margin: 3.5rem 0 0; padding: 0 }
figcaption, .note { font-size: .9rem; color: var(--faint); margin: .8rem 0 0; max-width: 46rem }
svg { display: block; width: 100%; height: auto; overflow: visible }
svg text { font-variant-numeric: tabular-nums; paint-order: stroke; stroke: var(--paper);
  stroke-width: 3px; stroke-linejoin: round }
svg.narrow { display: none; max-width: 480px }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .95rem; font-variant-numeric: tabular-nums }
th, td { padding: .28rem 0 .28rem 1.8rem; text-align: right; white-space: nowrap }
thead th { white-space: normal; vertical-align: bottom }
.many th, .many td { padding-left: 1.15rem }
tr > :first-child { padding-left: 0; text-align: left }
tbody th { font-weight: 400 }
tbody th.part { padding-left: 1.2rem }
thead th { font-weight: 600; border-bottom: 1px solid var(--faint) }
thead td { border-bottom: 1px solid var(--faint) }
tbody + tbody tr:first-child > * { border-top: 1px solid var(--rule) }
tbody + tbody tr:first-child > *, tbody tr:first-child > * { padding-top: .5rem }
tbody tr:last-child > * { padding-bottom: .5rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1.6rem; margin: 0 }
dt { color: var(--faint) }
dd { margin: 0; max-width: 40rem; overflow-wrap: anywhere }
ul { margin: 0; padding-left: 1.2rem; max-width: 46rem }
li { margin: 0 0 .4rem }
code { font: .92em ui-monospace, "SF Mono", Menlo, Consolas, monospace }
button { font: inherit; font-size: .9rem; color: inherit; background: none; cursor: pointer;
  border: 1px solid var(--faint); border-radius: 4px; padding: .3rem .8rem; margin: 0 .5rem 0 0 }
button:focus-visible { outline: 2px solid var(--aligned); outline-offset: 2px }
@media (max-width: 720px) {
  main { padding: 24px 16px 48px }
  .headline { font-size: 1.2rem }
  svg.wide { display: none }
  svg.narrow { display: block }
  table { font-size: .85rem }
  th, td { padding-left: .7rem; white-space: normal; vertical-align: top }
  th:first-child { min-width: 7.5rem }
  dl { grid-template-columns: 1fr; gap: 0 }
  dd { margin: 0 0 .6rem }
}
@media print {
  body { font-size: 10.5pt }
  main { max-width: none; padding: 0 }
  svg.wide { display: block }
  svg.narrow { display: none }
  figure, section { margin-top: 1.8rem }
  figure, table, dl { break-inside: avoid }
  h2 { break-after: avoid }
  .scroll { overflow: visible }
  table { font-size: 8.5pt }
  th, td { padding-left: 1rem }
  th:first-child, td:first-child { padding-left: 0 }
  tbody th.part { padding-left: 1rem }
  .data { display: none }
}
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{css}</style>
</head>
<body>
<main>
{body}
</main>
<script type="application/json" id="data">{data}</script>
<script>
const data = document.getElementById("data").textContent;
const say = (text) => {{ document.getElementById("done").textContent = text; }};
document.getElementById("download").onclick = () => {{
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([data], {{ type: "application/json" }}));
  link.download = "results.json";
  link.click();
  URL.revokeObjectURL(link.href);
}};
document.getElementById("copy").onclick = () => navigator.clipboard.writeText(data).then(
  () => say("copied"), () => say("the browser does not allow it; use Download"));
</script>
</body>
</html>
"""
