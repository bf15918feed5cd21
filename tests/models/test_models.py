"""The protocol as models that spin searches exhaustively, and planted errors that it must find.

See docs/explanation/model-checking.md. Skipped only where spin or a C compiler is missing;
`.ci/run` installs spin and fails without it.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DEPTH = 10_000
MEGABYTES = 4_000

MISSING = [tool for tool in ("spin", "cc") if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    # The search is a program of its own; on a busy machine it may take its time.
    pytest.mark.timeout(600),
]

AGREED = [
    ("escalation", "GRAPH=1 MODE=ALIGNED RECORDS=2 ENDS=0"),
    ("escalation", "GRAPH=1 MODE=UNALIGNED RECORDS=2 ENDS=0"),
    ("escalation", "GRAPH=1 MODE=ADAPTIVE RECORDS=2 ENDS=0"),
    ("escalation", "GRAPH=2 MODE=ADAPTIVE RECORDS=1 ENDS=0"),
    ("escalation", "GRAPH=1 MODE=ALIGNED RECORDS=1 ENDS=1"),
    ("escalation", "GRAPH=1 MODE=UNALIGNED RECORDS=1 ENDS=1"),
    ("escalation", "GRAPH=1 MODE=ADAPTIVE RECORDS=1 ENDS=1"),
    ("completion_log", "UNCLEAR=1 POWER=1"),
]
"""Model and choices: no error. Larger ones, run by hand, stand in the documentation."""

STREAMING = "GRAPH=1 MODE=ADAPTIVE RECORDS=2 ENDS=0"
ENDING = "GRAPH=1 MODE=ADAPTIVE RECORDS=1 ENDS=1"
UNCLEAR = "CHECKPOINTS=3 UNCLEAR=1 POWER=0"
POWER = "CHECKPOINTS=2 UNCLEAR=0 POWER=1"
PLANTED = [
    ("escalation", STREAMING, "FORGET_PARTIAL"),
    ("escalation", STREAMING, "FORGET_HAND"),
    ("escalation", STREAMING, "FORGET_UNSENT"),
    ("escalation", STREAMING, "CAPTURE_BEHIND"),
    ("escalation", STREAMING, "CAPTURE_DELIVERED"),
    ("escalation", STREAMING, "CLOSE_EARLY"),
    ("escalation", STREAMING, "CLOSE_AT_TAKE"),
    ("escalation", STREAMING, "FORWARD_FIRST"),
    ("escalation", STREAMING, "FORGET_RESUME"),
    ("escalation", STREAMING, "ESCALATE_AGAIN"),
    ("escalation", ENDING, "FINISHED_AT_ONCE"),
    ("escalation", ENDING, "END_UNNOTED"),
    ("completion_log", UNCLEAR, "APPEND_ANYWHERE"),
    ("completion_log", UNCLEAR, "COMMIT_BEFORE"),
    ("completion_log", POWER, "READ_FIRST"),
    ("completion_log", UNCLEAR, "FORGET_IDENTITY"),
    ("completion_log", UNCLEAR, "FORGET_NAMES"),
    ("completion_log", UNCLEAR, "DISCARD_DOUBTFUL"),
    ("completion_log", POWER, "TELL_UNSYNCED"),
    ("completion_log", UNCLEAR, "ABORT_NAMED"),
    ("completion_log", UNCLEAR, "ABORT_NEWER"),
    ("completion_log", UNCLEAR, "LOOK_ONCE"),
    ("completion_log", UNCLEAR, "SETTLE_BY_NUMBER"),
    ("completion_log", POWER, "READ_OVERTAKEN"),
]


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
    return done.stdout


def search(folder: Path, model: str, choices: str, *, optimize: str) -> str:
    """Generate the searching program, compile it, and let it visit every state.

    Compiling costs more than most searches: a planted error is found without optimizing."""
    macros = [f"-D{choice}" for choice in choices.split()]
    _run(folder, "spin", "-a", *macros, str(HERE / f"{model}.pml"))
    switches = ["-DSAFETY", f"-DMEMLIM={MEGABYTES}"]
    _run(folder, "cc", optimize, "-w", *switches, "-o", "pan", "pan.c")
    return _run(folder, "./pan", "-n", f"-m{DEPTH}")


@pytest.mark.parametrize(("model", "choices"), AGREED)
def test_every_schedule_of_the_model_keeps_what_is_promised(
    tmp_path: Path, model: str, choices: str
) -> None:
    told = search(tmp_path, model, choices, optimize="-O1")
    assert re.search(r"errors: 0\n", told), told
    # Whatever cuts a search short is told in one of these words.
    for cut in ("not completed", "max search depth too small", "out of memory", "truncated"):
        assert cut not in told, told


@pytest.mark.parametrize(("model", "choices", "error"), PLANTED)
def test_planted_error_is_found(tmp_path: Path, model: str, choices: str, error: str) -> None:
    told = search(tmp_path, model, f"{choices} PLANTED={error}", optimize="-O0")
    assert re.search(r"pan:1: (assertion violated|invalid end state)", told), told
    assert "errors: 1\n" in told


@pytest.mark.parametrize("model", ["escalation", "completion_log"])
def test_every_planted_error_of_the_model_is_tried(model: str) -> None:
    named = re.findall(r"^#define ([A-Z_]+) +1?\d  /\*", (HERE / f"{model}.pml").read_text(), re.M)
    assert named == [error for name, _, error in PLANTED if name == model]
