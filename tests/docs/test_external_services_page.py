"""The program of the page on external services does what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/how-to/external-services.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
OUTPUT = [
    ["10.0", "9.0", "XXX: KeyError: 'XXX'"],
    ["4 words in one call", "2 words in one call", "TO", "BE", "OR", "NOT", "TO", "BE"],
    ["500", "250", "500", "[250, 500, 500]"],
    ["TO", "BE"],
    ["25", "168"],
]


def test_page_has_its_programs() -> None:
    assert len(PROGRAMS) == len(OUTPUT)


@pytest.mark.parametrize("number", range(len(OUTPUT)))
def test_program_runs_and_prints_what_the_page_says(number: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[number], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True, timeout=30
    )
    assert sorted(done.stdout.splitlines()) == sorted(OUTPUT[number])
