"""The tutorial and the README's example are run as a reader would run them.

A Python block whose first line is `# name.py` is saved under that name. A console block is run
line by line: `$ command`, then exactly what it prints, then `[exit code n]` if that is not 0.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    """A command line and what it must print."""

    line: str
    output: str


def _blocks(page: Path) -> list[tuple[str, str]]:
    return [(kind, body) for kind, body in BLOCK.findall(page.read_text(encoding="utf-8"))]


def _commands(body: str) -> list[Command]:
    parts = re.split(r"^\$ (.*)\n", body, flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return [Command(line, output) for line, output in pairs]


def _save(body: str, folder: Path) -> None:
    name = re.match(r"# (\w+\.py)\n", body)
    assert name, f"a Python block has no name:\n{body}"
    (folder / name[1]).write_text(body, encoding="utf-8")


def _run(line: str, folder: Path) -> str:
    """Run a command line with this environment's `python` and `streamcp`; what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        line,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=50,
    )
    code = f"[exit code {done.returncode}]\n" if done.returncode else ""
    print(done.stderr)  # shown by pytest if the comparison fails
    return done.stdout + code


def _follow(page: Path, folder: Path) -> int:
    """Do what the page says; return how many commands were compared."""
    compared = 0
    for kind, body in _blocks(page):
        if kind == "python":
            _save(body, folder)
            continue
        for command in _commands(body):
            assert _run(command.line, folder) == command.output, command.line
            compared += 1
    return compared


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/tutorial").glob("*.md")), ids=lambda p: p.stem
)
def test_tutorial_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    assert _follow(page, tmp_path) > 0


def test_readme_example_prints_what_it_says(tmp_path: Path) -> None:
    readme = ROOT / "README.md"
    example = next(body for kind, body in _blocks(readme) if kind == "python")
    (tmp_path / "words.py").write_text(example, encoding="utf-8")
    said = re.search(r"It prints `(.+?)`", readme.read_text(encoding="utf-8"))
    assert said
    assert _run("python words.py", tmp_path) == f"{said[1]}\n"
