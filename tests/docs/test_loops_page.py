"""The programs of the page on loops do what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import lines_printed_by, programs_of

PROGRAMS = programs_of("loops.md")
OUTPUT = [
    ["0.5", "0.625", "0.75"],
    ["1 after 1 calls", "2 after 2 calls", "3 after 3 calls"],
]


def test_page_has_two_programs() -> None:
    assert len(PROGRAMS) == len(OUTPUT)


@pytest.mark.parametrize("number", range(len(OUTPUT)))
def test_program_runs_and_prints_what_the_page_says(number: int, tmp_path: Path) -> None:
    printed = lines_printed_by(PROGRAMS[number], tmp_path)
    assert sorted(printed) == OUTPUT[number]
