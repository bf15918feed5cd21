"""The protocol as models that spin searches exhaustively, and planted errors that it must find.

See docs/explanation/model-checking.md. Skipped only where spin or a C compiler is missing;
`.ci/run` installs spin and fails without it.
"""

import functools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DEPTH = 10_000
MEGABYTES = 4_000
HASHES = 22  # bits: more places than states, else they are looked for in long chains

MISSING = [tool for tool in ("spin", "cc") if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    # The search is a program of its own; on a busy machine it may take its time.
    pytest.mark.timeout(600),
]

BRIEF, LONG = "-O0", "-O1"  # to optimize takes two seconds, which only a long search wins back
AGREED = [
    ("escalation", "GRAPH=1 MODE=ALIGNED RECORDS=2 ENDS=0", BRIEF),
    ("escalation", "GRAPH=1 MODE=UNALIGNED RECORDS=2 ENDS=0", BRIEF),
    ("escalation", "GRAPH=1 MODE=ADAPTIVE RECORDS=2 ENDS=0", LONG),
    ("escalation", "GRAPH=2 MODE=ADAPTIVE RECORDS=1 ENDS=0", BRIEF),
    ("escalation", "GRAPH=1 MODE=ALIGNED RECORDS=1 ENDS=1", BRIEF),
    ("escalation", "GRAPH=1 MODE=UNALIGNED RECORDS=1 ENDS=1", BRIEF),
    ("escalation", "GRAPH=1 MODE=ADAPTIVE RECORDS=1 ENDS=1", LONG),
    ("completion_log", "UNCLEAR=1 POWER=1", LONG),
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


# Which error is planted is said when the search starts, so that one program is good for many.
CHOSEN_AT_START = """
#include <stdlib.h>
static int planted_error;
static void __attribute__((constructor)) plant(void) { planted_error = atoi(getenv("PLANTED")); }
"""


def _run(folder: Path, *command: str, **environment: str) -> str:
    env = os.environ | environment
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
    return done.stdout


def make_program(folder: Path, model: str, choices: str, *switches: str) -> Path:
    """Generate the searching program of a model, and compile it."""
    named = (choice.split("=", maxsplit=1) for choice in shlex.split(choices))
    # spin hands them to a shell.
    macros = [f"-D{name}={shlex.quote(value)}" for name, value in named]
    _run(folder, "spin", "-a", *macros, str(HERE / f"{model}.pml"))
    limits = ["-DSAFETY", f"-DMEMLIM={MEGABYTES}"]
    _run(folder, "cc", *switches, "-w", *limits, "-o", "pan", "pan.c")
    return folder / "pan"


def search(folder: Path, program: Path, **environment: str) -> str:
    """Visit every state, until an error is found."""
    return _run(folder, str(program), "-n", f"-m{DEPTH}", f"-w{HASHES}", **environment)


@pytest.fixture(scope="module")
def with_errors(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The program of a model in which an error can be planted; compiling costs more than to find
    one."""

    @functools.cache
    def make(model: str, choices: str) -> Path:
        folder = tmp_path_factory.mktemp(model)
        (folder / "plant.h").write_text(CHOSEN_AT_START, encoding="utf-8")
        later = f"{choices} 'PLANTED=(c_expr {{ planted_error }})'"
        return make_program(folder, model, later, BRIEF, "-include", "plant.h")

    return make


@pytest.mark.parametrize(("model", "choices", "optimizing"), AGREED)
def test_every_schedule_of_the_model_keeps_what_is_promised(
    tmp_path: Path, model: str, choices: str, optimizing: str
) -> None:
    told = search(tmp_path, make_program(tmp_path, model, choices, optimizing))
    assert re.search(r"errors: 0\n", told), told
    # Whatever cuts a search short is told in one of these words.
    for cut in ("not completed", "max search depth too small", "out of memory", "truncated"):
        assert cut not in told, told


@pytest.mark.parametrize(("model", "choices", "error"), PLANTED)
def test_planted_error_is_found(
    tmp_path: Path, with_errors: Callable[[str, str], Path], model: str, choices: str, error: str
) -> None:
    number = str(numbers_of_errors(model)[error])
    told = search(tmp_path, with_errors(model, choices), PLANTED=number)
    assert re.search(r"pan:1: (assertion violated|invalid end state)", told), told
    assert "errors: 1\n" in told


@pytest.mark.parametrize("model", ["escalation", "completion_log"])
def test_every_planted_error_of_the_model_is_tried(model: str) -> None:
    assert [*numbers_of_errors(model)] == [error for name, _, error in PLANTED if name == model]


def numbers_of_errors(model: str) -> dict[str, int]:
    """The errors that can be planted, as the model lists them."""
    text = (HERE / f"{model}.pml").read_text(encoding="utf-8")
    listed = re.findall(r"^#define ([A-Z_]+) +(1?\d)  /\*", text, re.M)
    return {name: int(number) for name, number in listed}
