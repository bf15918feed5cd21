"""The flights example as a whole: with its HTTP service, and killed in the middle."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

import streamcp as sc
from streamcp.examples import flights as example
from streamcp.examples.nycflights import data_file
from streamcp.examples.weather import Weather, load_weather


async def expected_reports(limit: int) -> list[bytes]:
    """Compute the reports with a plain loop."""
    weather = load_weather(data_file("weather.csv"))
    states: dict[str, Any] = defaultdict(example.CarrierDelays)
    reports: list[example.DelayReport] = []
    source = sc.files.read_csv(data_file("flights.csv.zip"), limit=limit)
    async for rows, _ in source.open(source.start):
        for flight in map(example.parse, filter(example.has_left, rows)):
            body = weather.get((flight.origin, flight.hour))
            known = None if body is None else Weather(**orjson.loads(body))
            departure = example.Departure(flight, example.weather_class(known))
            context = type("Context", (), {"key": flight.carrier})()
            state = states[flight.carrier]
            reports += example.update_delays(departure, state, cast("sc.KeyContext[str]", context))
    return sorted(orjson.dumps(dataclasses.asdict(report)) for report in reports)


def written_reports(out: Path) -> list[bytes]:
    assert [name for name in os.listdir(out) if name.startswith(".")] == []
    return sorted(line for path in out.glob("*.jsonl") for line in path.read_bytes().splitlines())


async def test_job_writes_what_a_plain_loop_computes(tmp_path: Path) -> None:
    job = example.flights(limit=500, latency="1ms", concurrency=20, out=tmp_path / "out")

    result = await job.run_async(checkpoints=sc.Checkpoints(to=tmp_path / "checkpoints"))

    assert result.outcome == "finished"
    assert written_reports(tmp_path / "out") == await expected_reports(500)


# Kills itself in the middle of the calls of the first run, once something is committed.
SCRIPT = """
import os, signal, sys
from pathlib import Path
import streamcp as sc
from streamcp.examples import flights as example

folder = Path(sys.argv[1])
ask = example.look_up_weather

async def ask_or_die(flight, service):
    departure = await ask(flight, service)
    if not (folder / "died").exists() and list((folder / "out").glob("*.jsonl")):
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return departure

if __name__ == "__main__":
    example.look_up_weather = ask_or_die
    job = example.flights(limit=2000, latency="50ms", out=folder / "out")
    result = job.run(checkpoints=sc.Checkpoints(to=folder / "checkpoints", every="100ms"))
    print(result.restored_from)
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is of POSIX systems")
async def test_job_killed_in_the_middle_writes_each_report_once(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path)]

    killed = subprocess.run(command)  # noqa: ASYNC221 - nothing else runs here
    finished = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: ASYNC221

    assert killed.returncode == -9
    assert int(finished.stdout) >= 1
    assert written_reports(tmp_path / "out") == await expected_reports(2000)
