"""The program of the page on dead letters does what the page says."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import lines_printed_by, programs_of


def test_program_runs_and_prints_what_the_page_says(tmp_path: Path) -> None:
    [program] = programs_of("dead-letters.md")
    printed = lines_printed_by(program, tmp_path)
    assert sorted(printed) == [
        "parse: 'FR': ValueError: not enough values to unpack (expected 2, got 1)",
        "parse: 'IT,much': ValueError: could not convert string to float: 'much'",
        "total 3.5",
        "total 7.5",
    ]
