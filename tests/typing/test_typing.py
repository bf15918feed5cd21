"""Good programs have no error, and every wrong line is reported, by mypy and by pyright alike."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = sorted(path for path in HERE.glob("*.py") if not path.name.startswith("test_"))

# Each checker reads the whole package once; on a cold cache that takes longer than a test may.
pytestmark = pytest.mark.timeout(240)


def _checker(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def _lines_with_errors_by_mypy() -> set[str]:
    output = _checker("mypy", "--strict", *(str(path) for path in PROGRAMS))
    assert "Success" in output or "Found" in output, output
    found = re.findall(r"^.*?([\w.]+\.py):(\d+): error: (.*)$", output, flags=re.MULTILINE)
    return {f"{name}:{line}" for name, line, _ in found if (HERE / name).exists()}


def _lines_with_errors_by_pyright() -> set[str]:
    output = _checker("pyright", "--outputjson", "-p", str(HERE))
    try:
        report = json.loads(output[output.index("{") :])
    except ValueError:
        pytest.skip(f"pyright cannot be started here (it fetches node): {output[-300:]}")
    return {
        f"{Path(found['file']).name}:{found['range']['start']['line'] + 1}"
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    }


def _marked_lines() -> set[str]:
    return {
        f"{path.name}:{number}"
        for path in PROGRAMS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "# error" in line
    }


def test_mypy_reports_exactly_the_wrong_lines() -> None:
    assert _lines_with_errors_by_mypy() == _marked_lines()


def test_pyright_reports_exactly_the_wrong_lines() -> None:
    assert _lines_with_errors_by_pyright() == _marked_lines()


def test_there_are_wrong_lines() -> None:
    """Without a mark the two tests above would prove nothing."""
    assert len(_marked_lines()) > 40
