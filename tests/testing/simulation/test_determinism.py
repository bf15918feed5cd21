"""Same seed, same run, to the byte: in another process, with other hashes and addresses."""

from __future__ import annotations

import os
import subprocess
import sys

from streamcp.testing.simulation.run import run_seed
from streamcp.testing.simulation.trace import Trace

SEEDS = range(12)
_PROGRAM = """
import sys
from tests.testing.simulation.test_determinism import traces
filler = [object() for _ in range(int(sys.argv[1]))]  # other addresses
sys.stdout.write(traces())
"""


def traces() -> str:
    made = [Trace() for _ in SEEDS]
    for seed, trace in zip(SEEDS, made, strict=True):
        run_seed(seed, trace)
    return "\n".join(map(str, made))


def _in_process(hash_seed: str, filler: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, filler],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


def test_seed_gives_the_same_trace_in_another_process_with_another_hash_seed() -> None:
    here = traces()
    assert here.count("\n") > 100
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    assert _in_process(other, "100000") == here
