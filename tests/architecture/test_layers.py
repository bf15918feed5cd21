"""The contracts of `.importlinter` hold, and no part of the package is outside them."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

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


def test_imports_follow_the_contracts(capsys: pytest.CaptureFixture[str]) -> None:
    """Siblings and upward imports are reported with the chain that leads there."""
    code = lint_imports(config_filename=str(CONTRACTS), no_cache=True, no_logo=True)
    assert code == 0, capsys.readouterr().out


def test_new_part_of_the_package_has_a_floor() -> None:
    """A file or folder that no layer names would escape the contracts."""
    assert _parts_of_the_package() - BESIDE <= _layered()
