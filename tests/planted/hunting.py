"""Hunts for planted faults: the simulator's seeds, in a process of its own, over a patched copy.

What was found is kept in `found.json`: per fault the first seed that shows it, and the invariant
that broke. A seed stands for the same run only as long as neither the simulator's draws nor the
schedule change, so the record is where to look first, not what must be true for ever.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.planted.patching import HERE, Fault, copy_package

LIMIT = 2000
"""A fault that no seed up to here shows is one that the simulator does not find."""
FOUND = HERE / "found.json"


@dataclass(frozen=True)
class Result:
    """The last seed that was run, and how it failed; None if no seed did."""

    seed: int
    failure: str | None

    @property
    def invariant(self) -> str:
        """What broke, in a word or two: `I1`, or the kind of error."""
        kind, _, text = (self.failure or "nothing").partition(": ")
        if kind != "Violation":
            return _UNHELD.get(kind, kind)
        name = text.partition(":")[0]
        return name if name[:1] in "IP" and name[1:].isdigit() else "does not finish"


_UNHELD = {"WaitsForever": "waits for ever", "StepLimit": "runs in circles"}


def hunt(fault: Fault | None, first: int, last: int) -> Result:
    """Run seeds over a copy with a fault (None: as it is) until an invariant breaks.

    Raises DoesNotApply, and CalledProcessError if the copy cannot be run at all."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        checkout = Path(folder)
        copy_package(checkout)
        if fault is not None:
            fault.apply(checkout)
        command = [sys.executable, str(HERE / "hunter.py"), folder, str(first), str(last)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Result(**json.loads(ran.stdout))


def recorded() -> dict[str, Any]:
    """What `found.json` says, per fault: the `seed` that shows it (None if no one did of
    the first, as many as `tried`) and the `invariant` that broke."""
    loaded: dict[str, Any] = json.loads(FOUND.read_text(encoding="utf-8"))
    return loaded


def found_seeds() -> dict[str, int]:
    """The seed that shows a fault, of those that were found."""
    return {name: one["seed"] for name, one in recorded().items() if one["seed"] is not None}


def row(fault: Fault) -> str:
    """The row of a fault in docs/explanation/simulation.md."""
    known = recorded()[fault.name]
    if known["seed"] is None:
        return f"| {fault.name} | {fault.sentence} | not within {known['tried']} | |"
    return f"| {fault.name} | {fault.sentence} | {known['seed'] + 1} | {known['invariant']} |"
