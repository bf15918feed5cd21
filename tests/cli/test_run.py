from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamcp.storage.local import LocalStorage

Cli = Callable[..., Any]
Write = Callable[..., Path]

PLAIN = "job = sc.Job('plain')\njob.source(sc.items(['a', 'b']), name='in').sink(sc.stdout())\n"
FAILING = """
def check(x):
    return bang(x) if x == 3 else x
def bang(x):
    raise ValueError(f"no {x}")
job = sc.Job("failing")
job.source(sc.items(range(5)), name="in").map(check, name="check").sink(sc.discard(), name="out")
"""
# Reads ten numbers in each run, then asks itself to stop, as Ctrl-C would. What comes behind the
# first of them waits for ever in an asynchronous step, so that it is in flight.
STOPPING = """
from dataclasses import dataclass
SIGNALS = 1
HOLD = False
@dataclass
class Count:
    n: int = 0
@dataclass(frozen=True)
class Seen:
    n: int
def count(x: int, state: Count, ctx: sc.KeyContext[int]) -> list[Seen]:
    state.n += 1
    return [Seen(state.n)]
async def hold(seen: Seen) -> Seen:
    if HOLD:
        await asyncio.Event().wait()
    return seen
@sc.source
async def numbers(position: int = 0):
    for n in range(position, position + 10):
        yield n, n + 1
    for _ in range(SIGNALS):
        signal.raise_signal(signal.SIGINT)
    await asyncio.Event().wait()
job = sc.Job("stopping", checkpoints=sc.Checkpoints(to="cp"))
(job.source(numbers(), name="in").key_by(lambda x: 0).process(count, state=Count, name="count")
    .map(hold, name="hold", concurrency=20).sink(sc.discard(), name="out"))
if __name__ == "__main__":
    job.run()
"""


def test_output_of_the_job_is_all_of_stdout(cli: Cli, write: Write) -> None:
    write(PLAIN)
    ran = cli("run", "my_job.py")
    assert (ran.code, ran.out) == (0, "a\nb\n")
    assert "job plain: no checkpoints" in ran.err
    assert "job plain finished" in ran.err
    assert "records read: in 2" in ran.err
    assert "checkpoint 1 complete" not in ran.err, "nothing durable is said to be complete"


def test_quiet_says_nothing(cli: Cli, write: Write) -> None:
    write(PLAIN)
    ran = cli("run", "my_job.py", "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "a\nb\n", "")


def test_json_is_all_of_stdout(cli: Cli, write: Write) -> None:
    write(PLAIN)
    ran = cli("run", "my_job.py", "--json")
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert [event["event"] for event in events] == [
        "JobStarted",
        "CheckpointTriggered",
        "CheckpointCompleted",
        "JobFinished",
        "Result",
    ]
    assert events[-1]["outcome"] == "finished"
    assert events[-1]["last_checkpoint"] is None
    assert events[-1]["tasks"][0]["steps"][0]["records_out"] == 2
    assert ran.err == "a\nb\n"


def test_options_stand_before_or_behind_the_job(cli: Cli, write: Write) -> None:
    write(PLAIN)
    for words in (["--channel-capacity", "0", "my_job.py"], ["my_job.py", "--channel-capacity=0"]):
        ran = cli("run", *words)
        assert ran.code == 2
        assert "command line: channel_capacity=0: write 1 or more" in ran.err


def test_failure_shows_step_place_record_and_the_users_frames_only(cli: Cli, write: Write) -> None:
    path = write(FAILING)
    ran = cli("run", "my_job.py")
    assert ran.code == 1
    assert f"step 'check' ({path}:9) failed at record 3: ValueError: no 3" in ran.err
    assert "in check" in ran.err
    assert 'raise ValueError(f"no {x}")' in ran.err
    assert f"streamcp{os.sep}runtime" not in ran.err
    assert "Traceback" not in ran.err


def test_traceback_shows_every_frame(cli: Cli, write: Write) -> None:
    write(FAILING)
    ran = cli("run", "my_job.py", "--traceback")
    assert ran.code == 1
    assert f"streamcp{os.sep}runtime" in ran.err
    assert "Traceback" in ran.err


def test_failure_in_json_is_the_last_line(cli: Cli, write: Write) -> None:
    write(FAILING)
    ran = cli("run", "--json", "my_job.py")
    last = json.loads(ran.out.splitlines()[-1])
    assert (ran.code, last["event"], last["exit_code"]) == (1, "Error", 1)
    assert "ValueError: no 3" in last["error"]


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (PLAIN, "--mode sideways --checkpoints cp", "mode='sideways'"),
        (PLAIN, "--every 5 --checkpoints cp", "is not a duration"),
        (PLAIN, "--every 5s", "--checkpoints DIR"),
        ("job = sc.Job('x')\njob.source(sc.items([1]))\n", "", "cannot be built"),
        ("job = sc.Job('a/b')\n", "", "is also a folder's"),
        ("1 / 0\n", "", "ZeroDivisionError"),
    ],
)
def test_wrong_use_has_its_own_exit_code(
    cli: Cli, write: Write, text: str, words: str, message: str
) -> None:
    write(text)
    ran = cli("run", "my_job.py", *words.split())
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_missing_job_is_wrong_use(cli: Cli) -> None:
    assert cli("run").code == 2
    assert cli("run", "nowhere.py").code == 2


def test_restart_is_told_with_its_reason(cli: Cli, write: Write) -> None:
    write(
        FAILING.replace("def bang(x):", "failed = []\ndef bang(x):\n    failed.append(x)").replace(
            "if x == 3", "if x == 3 and not failed"
        )
    )
    ran = cli("run", "my_job.py", "--checkpoints", "cp", "--json")
    assert ran.code == 0, ran.err
    names = [json.loads(line)["event"] for line in ran.out.splitlines()]
    assert names[:4] == ["JobStarted", "TaskFailed", "JobRestarting", "JobStarted"]


def test_finished_job_says_so(cli: Cli, write: Write) -> None:
    write(FAILING.replace("x == 3", "False"))
    assert cli("run", "my_job.py", "--checkpoints", "cp").code == 0
    ran = cli("run", "my_job.py", "--checkpoints", "cp")
    assert ran.code == 0
    assert "has finished already, with checkpoint 1: there is nothing to do; --fresh" in ran.err
    ran = cli("run", "my_job.py", "--checkpoints", "cp", "--fresh")
    assert "attempt 3 started from the beginning" in ran.err


def test_first_signal_stops_with_a_checkpoint_and_the_next_run_replays(
    cli: Cli, write: Write
) -> None:
    write(STOPPING.replace("HOLD = False", "HOLD = True"))
    ran = cli("run", "my_job.py")
    assert ran.code == 0, ran.err
    assert "stopping with a last checkpoint" in ran.err
    assert "checkpoint 1 complete (stop" in ran.err
    assert "stopped after" in ran.err
    assert "a later run continues from checkpoint 1" in ran.err
    assert "records written: out 0" in ran.err
    sys.modules["my_job"].HOLD = False  # type: ignore[attr-defined]
    ran = cli("run", "my_job.py")
    assert "attempt 2 restored checkpoint 1 in" in ran.err
    assert "replaying 10 in-flight records" in ran.err


def test_second_signal_ends_at_once_without_noise(write: Write, folder: Path) -> None:
    write(STOPPING.replace("SIGNALS = 1", "SIGNALS = 2"))
    ran = _in_a_process("run", "my_job.py")
    assert ran.returncode == 130
    assert "Traceback" not in ran.stderr
    assert ran.stderr.splitlines()[-1].endswith(
        "job stopping ended at once; no checkpoint is complete: a later run begins anew"
    )


def test_second_signal_ends_also_a_job_that_blocks(write: Write, folder: Path) -> None:
    write(
        """
def block(x):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    signal.pause()
job = sc.Job("blocked")
job.source(sc.items([1])).map(block).sink(sc.discard())
"""
    )
    ran = _in_a_process("run", "my_job.py", "--quiet")
    assert (ran.returncode, ran.stderr) == (130, "")


def _in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Not in this one: it would be ended as well."""
    command = [sys.executable, "-m", "streamcp", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


def test_stop_whose_checkpoint_fails_says_why_and_where_a_later_run_continues(
    cli: Cli, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(STOPPING)
    assert cli("run", "my_job.py").code == 0
    # Its data is written by a thread, and meanwhile the time is over.
    monkeypatch.setattr(LocalStorage, "defer_data", lambda *arguments: None)
    ran = cli("run", "my_job.py", "--timeout", "0s")
    assert ran.code == 1
    assert "it took longer than the checkpoint timeout" in ran.err
    assert "a later run continues from checkpoint 1" in ran.err
    assert "Traceback" not in ran.err


def test_signal_without_checkpoints_stops_too(cli: Cli, write: Write) -> None:
    write(STOPPING.replace(', checkpoints=sc.Checkpoints(to="cp")', ""))
    ran = cli("run", "my_job.py")
    assert ran.code == 0
    assert "stopped after" in ran.err
    assert "; a later run begins anew" in ran.err


def test_script_is_continued_however_it_is_started(cli: Cli, write: Write, folder: Path) -> None:
    write(STOPPING)
    for words in (["my_job.py"], ["-m", "my_job"]):
        script = [sys.executable, *words]
        ran = subprocess.run(script, capture_output=True, text=True, timeout=50)
        assert (ran.returncode, ran.stderr) == (0, "")
    assert cli("run", "my_job.py").code == 0
    assert cli("run", "my_job").code == 0
    shown = cli("checkpoints", "show", "cp", "--state", "count", "--json")
    (row,) = json.loads(shown.out)["state"]
    assert row == {"key": 0, "value": {"class": "my_job.Count", "n": 40}, "timers": []}
