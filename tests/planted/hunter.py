"""Run as a script, beside a copy of the package: look for the first seed that shows a fault.

    python hunter.py CHECKOUT FIRST LAST

Prints one JSON object: how many seeds were run, and the failure of the last one, or null. Imports
nothing but the copy, so that no other one can take its place.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(checkout: Path, first: int, last: int) -> None:
    """Run the seeds from `first` to `last` until one fails."""
    sys.path[:] = [str(checkout), *sys.path[1:]]
    import streamcp
    from streamcp.testing.simulation.run import run_seed

    if not Path(streamcp.__file__).is_relative_to(checkout):
        raise SystemExit(f"not the copy in {checkout}, but {streamcp.__file__}")
    failure = None
    seed = first
    for seed in range(first, last + 1):
        try:
            failure = run_seed(seed).failure
        except Exception as error:  # the simulator itself stumbles over the fault: shown as it is
            failure = f"raised {type(error).__name__}: {error}"
        if failure is not None:
            break
    print(json.dumps({"seed": seed, "failure": failure}))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]))
