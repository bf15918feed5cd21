"""The programs of the page on steps with two inputs do what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/how-to/two-inputs.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
# The order between the two inputs is not promised: both outputs of the second program are right.
OUTPUT = [
    [{"order 1 is paid"}],
    [{"de is over its limit"}, {"de is over its limit", "fr is over its limit"}],
]


def test_page_has_two_programs() -> None:
    assert len(PROGRAMS) == len(OUTPUT)


@pytest.mark.parametrize("number", range(len(OUTPUT)))
def test_program_runs_and_prints_what_follows_from_its_records(number: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[number], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True, timeout=30
    )
    assert set(done.stdout.splitlines()) in OUTPUT[number]
