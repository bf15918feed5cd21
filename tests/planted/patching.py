"""Planted faults as unified diffs, and the copy of the package that each is applied to.

A patch begins with a sentence that says what is wrong. It is found by its text, not by line
numbers, so that it goes on applying while the file around it changes; where its text is not there
exactly once it fails loudly: then the fault has to be planted anew.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "streamcp"

_START = re.compile(r"^--- a/", re.MULTILINE)
_HUNK = re.compile(r"^@@ .*@@.*\n", re.MULTILINE)


class DoesNotApply(Exception):
    """The text that a patch changes is not there, or not only once."""


@dataclass(frozen=True)
class Change:
    """One place of one file, relative to the checkout."""

    file: str
    before: str
    after: str


@dataclass(frozen=True)
class Fault:
    """A planted fault: `name` is that of its file, `sentence` says what is wrong."""

    name: str
    sentence: str
    changes: tuple[Change, ...]

    def apply(self, checkout: Path) -> None:
        """Plant the fault in a copy; raises DoesNotApply."""
        for change in self.changes:
            path = checkout / change.file
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            if text.count(change.before) != 1:
                raise DoesNotApply(
                    f"{self.name}.patch: its text is {text.count(change.before)} times in "
                    f"{change.file}, not once; plant the fault anew (tests/planted/README.md)"
                )
            path.write_text(text.replace(change.before, change.after), encoding="utf-8")


def faults() -> list[Fault]:
    """All planted faults, by name."""
    return [read(path) for path in sorted(HERE.glob("*.patch"))]


def read(path: Path) -> Fault:
    """Read one patch."""
    sentence, *files = _START.split(path.read_text(encoding="utf-8"))
    changes: list[Change] = []
    for diff in files:
        file, _, hunks = diff.partition("\n")
        changes += [_change(file, hunk) for hunk in _HUNK.split(hunks)[1:]]
    return Fault(path.stem, " ".join(sentence.split()), tuple(changes))


def _change(file: str, hunk: str) -> Change:
    lines = hunk.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    return Change(file, before, after)


def copy_package(to: Path) -> None:
    """Copy the package into a directory, as it is in this checkout."""
    shutil.copytree(PACKAGE, to / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
