"""What the recording sinks of a run have written, and how it differs from that of another run.

The order of lines is no part of it: subtasks write side by side. Every function blocks.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Output: TypeAlias = Counter[bytes]
"""How often each line was written; the folder of its sink stands before it."""

# Enough to see what kind of line it is; the files are kept for the rest.
EXAMPLES = 3


def read_output(folder: Path) -> Output:
    """Read the committed lines of every sink of the run in `folder`."""
    output: Output = Counter()
    for path in sorted(folder.glob("output/*/*.jsonl")):
        if not path.name.startswith("."):
            sink = path.parent.name.encode() + b": "
            with path.open("rb") as file:
                output.update(sink + line.rstrip(b"\n") for line in file)
    return output


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What is `missing` from an output, and what is in it `extra` (also: more often), in lines."""

    missing: int = 0
    extra: int = 0
    examples_missing: tuple[str, ...] = ()
    examples_extra: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """The outputs differ."""
        return bool(self.missing or self.extra)


def difference(expected: Output, found: Output) -> Difference:
    """Compare two outputs line for line, however often each occurs."""
    missing, extra = expected - found, found - expected
    return Difference(
        missing=missing.total(),
        extra=extra.total(),
        examples_missing=_examples(missing),
        examples_extra=_examples(extra),
    )


def _examples(lines: Output) -> tuple[str, ...]:
    return tuple(line.decode("utf-8", "replace") for line in sorted(lines)[:EXAMPLES])


def remove_folder(folder: Path) -> None:
    """Remove a folder of runs; what cannot be removed stays."""
    shutil.rmtree(folder, ignore_errors=True)
