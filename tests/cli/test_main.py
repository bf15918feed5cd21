from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
Write = Callable[..., Path]


def test_no_arguments_show_the_commands(cli: Cli) -> None:
    ran = cli()
    assert ran.code == 2
    for command in ("run", "compare", "graph", "checkpoints"):
        assert command in ran.out + ran.err


def test_version_is_that_of_the_package(cli: Cli) -> None:
    ran = cli("--version")
    assert (ran.code, ran.out) == (0, f"streamcp {version('streamcp')}\n")


def test_unknown_command_is_wrong_use(cli: Cli) -> None:
    assert cli("dance").code == 2


def test_module_that_leaves_with_a_text_is_a_failure(cli: Cli, write: Write) -> None:
    write("raise SystemExit('not today')\n")
    ran = cli("run", "my_job.py")
    assert (ran.code, ran.err) == (1, "not today\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_before_the_job_is_started_is_a_clean_stop(
    write: Write, folder: Path, number: signal.Signals
) -> None:
    write(f"signal.raise_signal({number.value})\n")
    ran = subprocess.run(
        [sys.executable, "-m", "streamcp", "run", "my_job.py"],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (ran.returncode, ran.stderr) == (0, "stopped before the job was started\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_ends_the_command_in_silence(
    write: Write, folder: Path, unbuffered: str
) -> None:
    write("job = sc.Job('j')\njob.source(sc.items([1]), name='in').sink(sc.stdout(), name='out')\n")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as stdout:
        ran = subprocess.run(
            [sys.executable, "-m", "streamcp", "graph", "my_job.py"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=50,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert ran.stderr == ""
