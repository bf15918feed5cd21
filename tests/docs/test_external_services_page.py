"""The program of the page on external services does what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import lines_printed_by, programs_of

PROGRAMS = programs_of("external-services.md")
OUTPUT = [
    ["10.0", "9.0", "XXX: KeyError: 'XXX'"],
    ["4 words in one call", "2 words in one call", "TO", "BE", "OR", "NOT", "TO", "BE"],
    ["500", "250", "500", "[250, 500, 500]"],
    ["ONE", "ONE", "TWO", "TWO", "THREE", "3 calls"],
    ["TO", "BE"],
    ["25", "168"],
]


def test_page_has_its_programs() -> None:
    assert len(PROGRAMS) == len(OUTPUT)


@pytest.mark.parametrize("number", range(len(OUTPUT)))
def test_program_runs_and_prints_what_the_page_says(number: int, tmp_path: Path) -> None:
    printed = lines_printed_by(PROGRAMS[number], tmp_path)
    assert sorted(printed) == sorted(OUTPUT[number])
