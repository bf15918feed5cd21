"""The comparison with the peers: what must come out, what engines answer, and what is made of it.

No peer is installed where these run: the bare loop and streamcp stand for all engines."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import os
import shutil
import sys
import venv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from benchmarks.harness import Row, Run, at_least
from benchmarks.harness.command import main
from benchmarks.peers import catalogue, checkpoints, install, rates
from benchmarks.peers.asking import EngineFailed, read_answer, run_group
from benchmarks.peers.engines import flink_rest, on_loop, on_streamcp, on_streamcp_checkpoints
from benchmarks.peers.taken import Goals, Taken, compared, rows_of
from benchmarks.peers.work import (
    ANSWER,
    Answer,
    Results,
    Task,
    expected,
    is_kept,
    key_of,
    scale,
    shift,
    time_of,
)
from streamcp.checkpoint.statistics import CheckpointStatistics

# ---- what must come out


def by_hand(workload: str, n: int) -> tuple[int, int]:
    """The count and the total, the long way."""
    scaled = [scale(value) for value in range(n)]
    kept = [value for value in scaled if is_kept(value)]
    if workload == "stateless":
        return len(kept), sum(map(shift, kept))
    if workload == "calls":
        return n, sum(place * answer for place, answer in enumerate(scaled, 1))
    if workload == "windows":
        counts = Counter((key_of(value), time_of(value) // 1000) for value in range(n))
        return len(counts), sum(count * count for count in counts.values())
    keys: Counter[int] = Counter()
    total = 0
    for value in kept:
        keys[key_of(value)] += 1
        total += keys[key_of(value)]
    return len(kept), total


WORKLOADS = ("stateless", "count", "count_with_checkpoints", "windows", "calls")


@pytest.mark.parametrize("n", [1, 2, 3, 5, 750, 1001, 9999, 23_456])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_arithmetic_gives_what_counting_gives(workload: str, n: int) -> None:
    assert expected(workload, n) == by_hand(workload, n)


@pytest.mark.parametrize(
    ("workload", "engine"),
    [
        ("stateless", on_loop.stateless),
        ("count", on_loop.count),
        ("windows", on_loop.windows),
        ("calls", on_loop.calls),
        *on_streamcp.WORKLOADS.items(),
    ],
)
def test_engine_computes_what_arithmetic_says(
    workload: str, engine: Callable[[Task], Results], tmp_path: Path
) -> None:
    n = 300 if workload == "calls" else 21_003
    results = engine(Task(workload, n, str(tmp_path), options={"every": "20ms"}))

    assert (results.count, results.total) == expected(workload, n)
    assert 0 < results.started < results.ended


def test_checkpoints_are_told_where_there_are_any(tmp_path: Path) -> None:
    task = Task("count_with_checkpoints", 5000, str(tmp_path))

    assert on_streamcp.count_with_checkpoints(task).extra["checkpoints"] >= 1
    assert on_streamcp.count(task).extra == {}


def test_order_is_part_of_the_total_of_calls() -> None:
    in_order, swapped = Results(), Results()
    in_order.add_in_order([1, 2, 3])
    swapped.add_in_order([1, 3, 2])

    assert in_order.total != swapped.total


def test_last_counts_give_the_total_of_running_counts() -> None:
    running, last = Results(), Results()
    running.add_all([1, 1, 2, 2, 3])
    last.add_last_counts([3, 2])

    assert (running.count, running.total) == (last.count, last.total)


# ---- asking


def test_answer_is_found_among_what_a_peer_prints() -> None:
    answer = Answer(1000, 0.5, 0.1, 750, 42, "1.2", {"checkpoints": 3})
    line = f"{ANSWER}{json.dumps(dataclasses.asdict(answer))}"

    assert read_answer("Peer", 0, f"INFO started\n{line}\nbye\n", "WARNING old") == answer
    assert answer.per_second == 2000


@pytest.mark.parametrize(
    ("code", "out", "errors", "said"),
    [
        (
            1,
            "",
            "Traceback\nImportError: no peer\n\n",
            "Peer ended with code 1: ImportError: no peer",
        ),
        (0, "hello\n", "", "Peer ended with code 0: hello"),
        (-9, f"{ANSWER}{{}}\n", "", "Peer ended with code -9"),
        (3, "", "", "Peer ended with code 3: no word"),
    ],
)
def test_engine_without_answer_fails_with_its_last_words(
    code: int, out: str, errors: str, said: str
) -> None:
    with pytest.raises(EngineFailed, match=said):
        read_answer("Peer", code, out, errors)


# Locks a file, in a process that nobody waits for, and ends.
_LEAVES_A_PROCESS = """
import fcntl, os, sys, time
read, write = os.pipe()
if os.fork() == 0:
    file = open(sys.argv[1], "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    os.write(write, b"locked")
    time.sleep(3600)
os.read(read, 6)
print("done")
"""


async def test_what_an_engine_leaves_behind_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    command = [sys.executable, "-c", _LEAVES_A_PROCESS, str(lock)]
    code, out, _ = await run_group(command, tmp_path, os.environ)

    assert (code, out) == (0, "done\n")
    with lock.open() as file:  # waits for ever if the other process still lives
        fcntl.flock(file, fcntl.LOCK_EX)


# ---- rates


def run_suite(suite: Any, sizes: Any, name: str, folder: Path) -> list[dict[str, Any]]:
    """Run one benchmark through its command line, and return its rows."""
    file = folder / "figures.json"
    arguments = ["run", f"{suite.name}.{name}", "--here", "--json", str(file)]
    main([dataclasses.replace(suite, full=sizes)], arguments)
    (result,) = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    return list(result["rows"])


@pytest.mark.parametrize("name", rates.SUITE.benchmarks)
def test_without_peers_loop_and_streamcp_are_compared(name: str, tmp_path: Path) -> None:
    sizes = rates.Sizes(1, 1, 0.001, 0.001, home=str(tmp_path / "none"))
    rows = {row["name"]: row for row in run_suite(rates.SUITE, sizes, name, tmp_path)}

    assert rows["results of every engine are right"]["value"] == 1
    assert rows["streamcp / bare loop"]["value"] > 0
    assert "python -m benchmarks.peers.install bytewax" in rows["Bytewax"]["detail"]
    assert {
        row["verdict"]
        for row in rows.values()
        if row["name"] in {peer.name for peer in catalogue.PEERS}
    } == {"skipped"}


def answer_of(seconds: float, records: int = 1000, workload: str = "stateless") -> Answer:
    return Answer(records, seconds, 0.1, *expected(workload, records))


def measured_of(*rounds: dict[str, Answer]) -> rates.Measured:
    return rates.Measured(list(rounds), {})


def rows_by_name(measured: rates.Measured, home: Path) -> dict[str, Row]:
    rows = rates.rows_of(measured, "stateless", home, at_least(2.0), None)
    return {row.name: row for row in rows}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where Bytewax and csp seem to be installed."""
    for name in ("bytewax", "csp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / catalogue.INSTALLED).touch()
    return tmp_path


def test_ratio_is_of_runs_of_one_round_and_the_fastest_peer_of_each_counts(home: Path) -> None:
    rows = rows_by_name(
        measured_of(
            {
                "bare loop": answer_of(1.0),
                "streamcp": answer_of(2.0),
                "Bytewax": answer_of(4.0),
                "csp": answer_of(8.0),
            },
            {
                "bare loop": answer_of(10.0),
                "streamcp": answer_of(20.0),
                "Bytewax": answer_of(80.0),
                "csp": answer_of(40.0),
            },
        ),
        home,
    )

    assert rows["streamcp / bare loop"].samples == (0.5, 0.5)
    assert rows["streamcp / fastest peer"].samples == (2.0, 2.0)
    assert rows["streamcp / fastest peer"].detail == "fastest: Bytewax, csp; bare loop itself 4 ×"
    assert rows["streamcp / csp"].samples == (4.0, 2.0)


def test_row_says_where_a_peer_is_faster(home: Path) -> None:
    answers = {name: answer_of(2.0) for name in ("bare loop", "streamcp", "csp")}
    rows = rows_by_name(measured_of(answers | {"Bytewax": answer_of(1.0)}), home)

    assert rows["streamcp / Bytewax"].detail == "faster than streamcp"
    assert rows["streamcp / csp"].detail == ""


def test_wrong_result_is_an_error_however_fast(home: Path) -> None:
    answers = {name: answer_of(2.0) for name in ("bare loop", "streamcp", "csp")}
    wrong = dataclasses.replace(answer_of(1.0), total=1)
    rows = rows_by_name(measured_of(answers | {"Bytewax": wrong}), home)

    assert rows["Bytewax: results are right"].verdict == "missed"
    assert "results of every engine are right" not in rows


def test_peer_that_fails_is_skipped_with_the_reason(home: Path) -> None:
    answers = {name: answer_of(2.0) for name in ("bare loop", "streamcp", "csp")}
    measured = rates.Measured([answers], {"Bytewax": "Bytewax ended with code 1: no"})
    rows = rows_by_name(measured, home)

    assert (rows["Bytewax"].verdict, rows["Bytewax"].detail) == (
        "skipped",
        "Bytewax ended with code 1: no",
    )


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_engine_has_a_rate_or_a_reason(workload: str) -> None:
    for engine in (catalogue.LOOP, catalogue.STREAMCP, *catalogue.PEERS):
        assert (workload in engine.rates) != (workload in engine.lacks), engine.name


# ---- checkpoints

TINY = checkpoints.Sizes(1, 0.3, 0.5, 0.5, calls=20, call_seconds=0.2)


@pytest.mark.parametrize("name", checkpoints.SUITE.benchmarks)
def test_without_flink_checkpoints_of_streamcp_are_told(name: str, tmp_path: Path) -> None:
    sizes = dataclasses.replace(TINY, home=str(tmp_path / "none"))
    rows = run_suite(checkpoints.SUITE, sizes, name, tmp_path)

    assert {row["name"].partition(",")[0] for row in rows if row["verdict"] != "skipped"} <= {
        "streamcp"
    }
    reasons = [row["detail"] for row in rows if "link" in row["name"]]
    assert reasons
    assert all("python -m benchmarks.peers.install pyflink" in reason for reason in reasons)


class Captured(Exception):
    """Ends a job at once: to drain it would take an hour."""


async def run_until_captured(job: sc.Job) -> None:
    async with job.start() as running:
        while (await running.checkpoint()).in_flight_records < 20:
            pass  # the queues are only filling
        raise Captured


@pytest.mark.parametrize("workload", on_streamcp_checkpoints.JOBS)
async def test_streamcp_captures_what_is_in_flight(workload: str, tmp_path: Path) -> None:
    options = {
        "checkpoints": "unaligned",
        "every": "1h",
        "capacity": 10,
        "calls": 20,
        "call_seconds": 3600.0,
    }
    job = on_streamcp_checkpoints.JOBS[workload](Task(workload, 0, str(tmp_path), options=options))

    with pytest.raises(Captured):
        await run_until_captured(job)


HISTORY: list[dict[str, Any]] = [
    {"id": 4, "status": "IN_PROGRESS", "trigger_timestamp": 4000, "end_to_end_duration": 10},
    {"id": 3, "status": "FAILED", "trigger_timestamp": 3500, "end_to_end_duration": 5},
    {
        "id": 2,
        "status": "COMPLETED",
        "trigger_timestamp": 3000,
        "end_to_end_duration": 250,
        "persisted_data": 4096,
    },
    {
        "id": 1,
        "status": "COMPLETED",
        "trigger_timestamp": 1000,
        "end_to_end_duration": 9000,
        "persisted_data": 1,
    },
]


def test_flink_tells_the_complete_ones_after_the_warm_up_and_the_age_of_the_open_one() -> None:
    assert flink_rest.told(HISTORY, first=2000, now=6500) == {
        "checkpoints": [{"seconds": 0.25, "bytes": 4096}],
        "failed": 1,
        "unfinished": [2.5],
    }


def test_streamcp_tells_as_flink_does() -> None:
    taken = [
        CheckpointStatistics(
            checkpoint_id=1, outcome="completed", triggered_ms=1000, durable_delay=9.0
        ),
        CheckpointStatistics(
            checkpoint_id=2,
            outcome="completed",
            triggered_ms=3000,
            durable_delay=0.25,
            end_to_end=0.2,
            in_flight_bytes=4096,
            in_flight_records=7,
        ),
        CheckpointStatistics(checkpoint_id=3, outcome="failed", triggered_ms=3500),
    ]
    triggered = {1: 1000.0, 2: 3000.0, 3: 3500.0, 4: 4000.0}

    assert on_streamcp_checkpoints.told(taken, triggered, 2000, 6500) == {
        "checkpoints": [{"seconds": 0.25, "acknowledged": 0.2, "bytes": 4096, "records": 7}],
        "failed": 1,
        "unfinished": [2.5],
    }


def taken_of(name: str, *seconds: float, unfinished: tuple[float, ...] = ()) -> Taken:
    return Taken(name, seconds, tuple(1e6 for _ in seconds), (), 0, unfinished)


def test_goals_judge_median_and_longest() -> None:
    ours, peer = taken_of("ours", *[0.01] * 6), taken_of("peer", *[0.05] * 5, 0.2)
    p50, longest = compared(ours, peer, Goals(p50=3.0, longest=25.0), seed=1)

    assert (p50.name, round(p50.value, 6), p50.verdict) == ("peer / ours, p50", 5.0, "met")
    assert (round(longest.value, 6), longest.verdict) == (20.0, "missed")


def test_open_checkpoint_of_a_peer_is_a_lower_bound() -> None:
    ours, peer = taken_of("ours", 0.01, 0.02, 0.03), taken_of("peer", unfinished=(4.0,))
    p50, longest = compared(ours, peer, Goals(p50=100.0), seed=1)
    (row,) = rows_of(peer)

    assert (p50.value, p50.verdict) == (200.0, "met")
    assert math.isclose(longest.value, 4.0 / 0.03)
    assert row.verdict == "skipped"
    assert "one not after 4.0 s" in row.detail


def test_row_says_where_the_checkpoints_of_a_peer_are_faster() -> None:
    p50, _ = compared(taken_of("ours", 0.2), taken_of("peer", 0.1), Goals(), seed=1)

    assert p50.detail == "the peer is faster"


async def test_unaligned_ones_run_once_more_in_reversed_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def take(run: object, workload: str, setting: checkpoints.Setting) -> Taken:
        asked.append(setting.name)
        return taken_of(setting.name, 0.1)

    monkeypatch.setattr(checkpoints, "take", take)
    settings = [
        checkpoints.Setting(engine, mode, {})
        for engine in (checkpoints.STREAMCP, checkpoints.JVM)
        for mode in ("unaligned", "aligned")
    ]
    sizes = dataclasses.replace(TINY, rounds=2)
    found = await checkpoints.take_all(Run(sizes), "jvm", settings)

    assert asked == [
        "streamcp, unaligned",
        "streamcp, aligned",
        "Flink without Python, unaligned",
        "Flink without Python, aligned",
        "Flink without Python, unaligned",
        "streamcp, unaligned",
    ]
    counts = {name: len(one.seconds) for name, one in found.items() if isinstance(one, Taken)}
    assert counts["streamcp, unaligned"] == 2
    assert counts["streamcp, aligned"] == 1


# ---- installing


def test_what_cannot_be_installed_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(command: list[str]) -> str:
        if "csp==0.19.1" in command:
            raise install.NotInstalled("ERROR: no csp for this machine")
        return "package==1.0\n"

    monkeypatch.setattr(install, "_call", call)
    monkeypatch.setattr(venv, "create", lambda folder, **_: folder.mkdir(parents=True))
    code = install.main(["csp", "streamz", "--to", str(tmp_path)])
    told = capsys.readouterr().out

    assert code == 1
    assert "csp: not installed: ERROR: no csp for this machine" in told
    assert "streamz: 1 packages in" in told
    installed = {name for name, one in catalogue.ENVIRONMENTS.items() if one.is_installed(tmp_path)}
    assert installed == {"streamz"}


def test_flink_needs_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)

    with pytest.raises(install.NotInstalled, match="apt-get install"):
        install.install(catalogue.ENVIRONMENTS["pyflink"], tmp_path)


def test_unknown_peer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        install.main(["flink"])
    assert "there is no such peer" in capsys.readouterr().err
