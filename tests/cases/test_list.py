"""The list of replayed reports is whole and true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent.parent
CASES = {1, 3, 4, 5, 6, 7, 9, 10, 11, 13, 15, 16, 17, 19, 20, 22, 23, 25, 27, 28, 29} | {
    31, 32, 34, 35, 36, 38, 40, 41, 42, 43, 45, 47, 48, 50, 51
}  # fmt: skip
_ROW = re.compile(r"\| (\d+) \| ([^|]+) \| \[\w+\] ([^|]+) \|")
_TEST = re.compile(r"`(\S+)::(\S+)`")
_LISTED = [
    (int(number), reports.strip().split(", "), path, name)
    for number, reports, tests in _ROW.findall((Path(__file__).parent / "README.md").read_text())
    for path, name in _TEST.findall(tests)
]


def test_every_case_is_listed() -> None:
    assert {number for number, *_ in _LISTED} == CASES


@pytest.mark.parametrize(("number", "reports", "path", "name"), _LISTED)
def test_listed_test_exists_and_tells_its_report(
    number: int, reports: list[str], path: str, name: str
) -> None:
    module = ast.parse((_TESTS / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    [found] = [
        node for node in ast.walk(module) if isinstance(node, functions) and node.name == name
    ]
    said = ast.get_docstring(found) or ""
    assert any(report in said for report in reports), f"case {number}: {said}"
