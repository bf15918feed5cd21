"""The Python programs of a page, and what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def programs_of(page: str) -> list[str]:
    """The programs of `docs/how-to/<page>`, in their order."""
    return programs_in((Path(__file__).parents[2] / "docs/how-to" / page).read_text("utf-8"))


def programs_in(text: str) -> list[str]:
    """The programs in the text of a page, in their order."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def lines_printed_by(program: str, folder: Path) -> list[str]:
    """Run a program from a file in `folder`; raises if it does not end well."""
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.splitlines()
