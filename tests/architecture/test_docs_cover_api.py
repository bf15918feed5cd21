"""The documentation covers the public words, the settings, and the rules that the code names."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import streamcp
from streamcp.config import Checkpoints, CircuitBreaker, JobSettings, Rate, Restart, Retry

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)|src=\"(?!https?:)([^\"]+)\"")
RULE = re.compile(r"\bP\d+a?\b")


def _read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def _documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def _anchors(document: Path) -> set[str]:
    """Ids written as HTML, and the ids that a heading gets."""
    text = document.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}
    return slugs | set(re.findall(r'id="([^"]+)"', text))


def test_reference_names_every_public_word() -> None:
    words = set(re.findall(r"\w+", _read("reference/api.md")))
    assert [name for name in streamcp.__all__ if name not in words] == []


@pytest.mark.parametrize(
    "settings", [Checkpoints, Restart, Retry, Rate, CircuitBreaker, JobSettings]
)
def test_settings_page_names_every_field(settings: type) -> None:
    page = _read("reference/settings.md")
    names = [field.name for field in dataclasses.fields(settings)]
    assert [name for name in names if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    "document", _documents(), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_every_link_between_pages_leads_somewhere(document: Path) -> None:
    broken = []
    for path, anchor, image in LINK.findall(document.read_text(encoding="utf-8")):
        target = (document.parent / (path or image)).resolve() if path or image else document
        missing = not target.exists() or (anchor and anchor not in _anchors(target))
        if missing:
            broken.append(f"{path or image}#{anchor}")
    assert broken == []


def test_every_rule_named_in_code_has_an_anchor() -> None:
    """Code and tests say "P14"; the page explains it under exactly that anchor."""
    anchors = _anchors(DOCS / "explanation/checkpointing.md")
    sources = [*(ROOT / "streamcp").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    named = {rule for path in sources for rule in RULE.findall(path.read_text(encoding="utf-8"))}
    assert sorted(rule for rule in named if rule not in anchors) == []


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    files = sorted((DOCS / "decisions").glob("*.md"))
    titles = [file.read_text(encoding="utf-8").splitlines()[0] for file in files]
    numbers = [f"{number:04}" for number in range(1, len(files) + 1)]
    assert [file.name[:4] for file in files] == numbers
    assert [title[:8] for title in titles] == [f"# {number}: " for number in numbers]
    assert [
        file.name for file in files if f"(decisions/{file.name})" not in _read("index.md")
    ] == []
