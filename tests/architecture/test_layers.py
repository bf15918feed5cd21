"""The contracts of `.importlinter` hold, and no part of the package is outside them."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / ".importlinter"
# Beside the house: nothing imports them (a contract of its own), or nothing is below them.
BESIDE = {"__init__", "__main__", "examples", "testing"}


def _layered() -> set[str]:
    config = configparser.ConfigParser()
    config.read(CONTRACTS, encoding="utf-8")
    return set(re.findall(r"streamcp\.(\w+)", config["importlinter:contract:house"]["layers"]))


def _parts_of_the_package() -> set[str]:
    package = ROOT / "streamcp"
    modules = {path.stem for path in package.glob("*.py")}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def test_imports_follow_the_contracts() -> None:
    """Siblings and upward imports are reported with the chain that leads there."""
    # In a process of its own: the linter configures logging and would silence our loggers.
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_new_part_of_the_package_has_a_floor() -> None:
    """A file or folder that no layer names would escape the contracts."""
    assert _parts_of_the_package() - BESIDE <= _layered()
