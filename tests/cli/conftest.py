"""The command line run in this process, in a directory of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamcp.cli.main import execute


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Cli = Callable[..., Ran]
Write = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def cli(folder: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*arguments: str) -> Ran:
        code = execute(arguments)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture
def write(folder: Path) -> Write:
    """Write a Python file that begins with the usual imports."""

    def to_file(text: str, name: str = "my_job.py") -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import asyncio, signal\nimport streamcp as sc\n{text}", encoding="utf-8")
        return path

    return to_file
