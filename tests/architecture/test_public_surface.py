"""The public words change only in sight: `public_surface.txt` lists them, one a line, sorted.

After a change on purpose, write the new list there; the change then shows in review.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import streamcp

LISTED = Path(__file__).with_name("public_surface.txt").read_text(encoding="utf-8").split()
# Heavy, and needed only by the command line, by running jobs, or by one connector.
LATE = (
    *("typer", "rich", "uvloop", "aiohttp", "matplotlib", "aiofiles", "orjson", "numpy"),
    "datasketches",
)


def test_all_is_the_checked_in_list() -> None:
    assert sorted(streamcp.__all__) == LISTED


def test_all_names_each_word_once() -> None:
    assert len(set(streamcp.__all__)) == len(streamcp.__all__)


def test_every_word_of_all_exists() -> None:
    assert [name for name in streamcp.__all__ if not hasattr(streamcp, name)] == []


def test_import_of_streamcp_is_light() -> None:
    """A job file is imported by editors, tests and workers: the heavy parts load on first use."""
    code = f"import sys, streamcp; print([m for m in {LATE!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "[]"
