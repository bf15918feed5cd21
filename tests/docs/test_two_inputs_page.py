"""The programs of the page on steps with two inputs do what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import lines_printed_by, programs_of

PROGRAMS = programs_of("two-inputs.md")
# The order between the two inputs is not promised: both outputs of the second program are right.
OUTPUT = [
    [{"order 1 is paid"}],
    [{"de is over its limit"}, {"de is over its limit", "fr is over its limit"}],
]


def test_page_has_two_programs() -> None:
    assert len(PROGRAMS) == len(OUTPUT)


@pytest.mark.parametrize("number", range(len(OUTPUT)))
def test_program_runs_and_prints_what_follows_from_its_records(number: int, tmp_path: Path) -> None:
    printed = lines_printed_by(PROGRAMS[number], tmp_path)
    assert set(printed) in OUTPUT[number]
