"""A child runs the job as ordered, without touching its targets, and tells what happens."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.compare.child import checkpoint_settings, measure
from streamcp.compare.messages import (
    Checkpoint,
    Ended,
    FirstCommit,
    FirstOutput,
    Message,
    Running,
    RunOrder,
    Sample,
    from_line,
)
from streamcp.compare.outputs import read_output


@sc.source(batches=True)
async def endless(position: int = 0) -> AsyncIterator[tuple[Sequence[int], int]]:
    for number in count(position, 10):
        yield range(number, number + 10), number + 10


async def never(records: Sequence[int]) -> None:
    pytest.fail(f"the target got {records!r}")


def job_of(source: sc.Source[int], checkpoints: sc.Checkpoints | None = None) -> sc.Job:
    job = sc.Job("doubles", checkpoints=checkpoints)
    job.source(source, name="numbers").map(lambda n: 2 * n).sink(never, name="the target")
    return job


async def told_by(job: sc.Job, order: RunOrder) -> list[Message]:
    told: list[Message] = []
    await measure(job, order, told.append)
    return told


def order_in(folder: Path, **more: Any) -> RunOrder:
    return RunOrder(folder=str(folder), mode="unaligned", **more)


async def test_job_is_run_to_the_limit_with_recording_sinks(tmp_path: Path) -> None:
    order = order_in(tmp_path, limits={"numbers": 25})

    told = await told_by(job_of(endless()), order)

    kinds = [type(message) for message in told]
    assert kinds[0] is Running
    assert kinds[-1] is Ended
    assert {Sample, Checkpoint, FirstOutput, FirstCommit} <= set(kinds)
    assert isinstance(told[-1], Ended)
    assert told[-1].read == {"numbers": 25}
    assert read_output(tmp_path) == {b"2-the_target: %d" % (2 * n): 1 for n in range(25)}


async def test_records_of_a_limited_source_keep_their_timestamps(tmp_path: Path) -> None:
    job = sc.Job("tens")
    source = job.source(endless(), name="numbers", watermarks=sc.Watermarks[int](lambda n: n))
    tens = source.key_by(lambda n: 0).window(sc.Tumbling("10ms"), name="tens").count()
    tens.map(lambda ten: ten.value).sink(never, name="the target")
    await told_by(job, order_in(tmp_path, limits={"numbers": 25}))
    assert read_output(tmp_path) == {b"3-the_target: 10": 2, b"3-the_target: 5": 1}


async def test_source_without_an_end_ends_when_its_time_is_up(tmp_path: Path) -> None:
    told = await told_by(job_of(endless()), order_in(tmp_path, seconds=0.0))

    assert isinstance(told[-1], Ended)
    assert read_output(tmp_path).total() == told[-1].read["numbers"]


async def test_second_child_goes_on_from_the_checkpoints_of_the_first(tmp_path: Path) -> None:
    await told_by(job_of(endless()), order_in(tmp_path, limits={"numbers": 25}))

    told = await told_by(job_of(endless()), order_in(tmp_path, limits={"numbers": 25}))

    assert isinstance(told[0], Running)
    assert told[0].restored_from == 1
    assert isinstance(told[-1], Ended)
    assert FirstOutput not in [type(message) for message in told]
    assert read_output(tmp_path).total() == 25


async def test_failing_job_is_not_restarted(tmp_path: Path) -> None:
    calls = []

    def fail(number: int) -> int:
        calls.append(number)
        raise ValueError("no")

    job = sc.Job("fails")
    job.source(sc.items([1]), name="one").map(fail).sink(sc.stdout(), name="out")

    with pytest.raises(sc.JobFailed, match="no"):
        await measure(job, order_in(tmp_path), lambda message: None)
    assert calls == [1]


def test_checkpoints_of_the_job_are_kept_except_place_mode_and_interval(tmp_path: Path) -> None:
    own = sc.Checkpoints(to="/real", every="7s", mode="aligned", alignment_timeout="3s", retain=9)

    used = checkpoint_settings(job_of(endless(), own), order_in(tmp_path, every="2s"))

    assert used == sc.Checkpoints(
        to=tmp_path / "checkpoints",
        every="2s",
        mode="unaligned",
        alignment_timeout="3s",
        retain=9,
    )


def test_timeout_is_replaced_and_the_interval_left_out_where_the_order_says_so(
    tmp_path: Path,
) -> None:
    own = sc.Checkpoints(to="/real", every="7s", alignment_timeout="3s", max_age="1m")
    order = order_in(tmp_path, alignment_timeout="10ms", periodic=False)

    used = checkpoint_settings(job_of(endless(), own), order)

    assert (used.alignment_timeout, used.every, used.max_age) == ("10ms", None, None)


def test_interval_is_the_job_s_own_or_a_second(tmp_path: Path) -> None:
    own = sc.Checkpoints(to="/real", every="7s")

    assert checkpoint_settings(job_of(endless(), own), order_in(tmp_path)).every == "7s"
    assert checkpoint_settings(job_of(endless()), order_in(tmp_path)).every == "1s"


SCRIPT = """
import sys
import streamcp as sc
from streamcp.compare import child

def load():
    print("printed while loading")
    job = sc.Job("words")
    job.source(sc.items(["a", "b"]), name="words").sink(sc.stdout(), name="out")
    return job

def refuse():
    raise sc.DefinitionError("no such job")

sys.exit(child.main({"load": load, "refuse": refuse}[sys.argv[1]]))
"""


def run_script(folder: Path, load: str, order: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run a child whose standard input stays open until it has ended."""
    reading, writing = os.pipe()
    os.write(writing, order)
    try:
        return subprocess.run(
            [sys.executable, "-c", SCRIPT, load], stdin=reading, capture_output=True, timeout=30
        )
    finally:
        os.close(reading)
        os.close(writing)


def test_standard_output_of_a_child_holds_messages_only(tmp_path: Path) -> None:
    done = run_script(tmp_path, "load", order_in(tmp_path).to_line())

    told = [from_line(line) for line in done.stdout.splitlines()]
    assert (done.returncode, type(told[-1])) == (0, Ended)
    assert b"printed while loading" in done.stderr


def test_job_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    done = run_script(tmp_path, "refuse", order_in(tmp_path).to_line())

    assert done.returncode == 1
    assert b"no such job" in done.stdout


def test_child_ends_when_its_standard_input_closes(tmp_path: Path) -> None:
    """An endless job whose parent is gone."""
    script = SCRIPT.replace('sc.items(["a", "b"])', "sc.generator(lambda n: n, rate=100)")
    order = order_in(tmp_path).to_line()

    done = subprocess.run(
        [sys.executable, "-c", script, "load"], input=order, capture_output=True, timeout=30
    )

    assert done.returncode == 1
