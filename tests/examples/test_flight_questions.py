"""The questions about flights, answered by SQL as well.

One flight in 32 of the whole year, so that both changes of daylight saving time are in it.
SQL has the local days from the columns of the data, and knows nothing of time zones.
"""

from __future__ import annotations

import asyncio
import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest

import streamcp as sc
from streamcp.examples import flight_questions as example
from streamcp.examples.flight_sources import read_flights
from streamcp.examples.nycflights import data_file
from streamcp.runners.handle import JobHandle
from tests.recovery.world import run_job

EVERY = 32


class World:
    """The sampled data, what the job wrote of them, and SQL over them."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        self.archive = folder / "flights.zip"
        sample = folder / "flights.csv"
        sample.write_text("".join(_sampled()), encoding="utf-8")
        with zipfile.ZipFile(self.archive, "w") as archive:
            archive.write(sample, "flights.csv")
        self.sql = duckdb.connect(config={"threads": 1})
        self.sql.execute(
            "CREATE TABLE flights AS SELECT *, "
            "strftime(make_date(year, month, day), '%Y-%m-%d') AS local_day, "
            "strptime(time_hour, '%Y-%m-%dT%H:%M:%SZ') + to_minutes(minute) AS due "
            "FROM read_csv(?, nullstr='NA', types={'time_hour': 'VARCHAR'}) "
            "WHERE dep_time IS NOT NULL",
            [str(sample)],
        )
        self.sql.execute(
            "CREATE TABLE weather AS SELECT *, strptime(time_hour, '%Y-%m-%dT%H:%M:%SZ') AS time "
            "FROM read_csv(?, nullstr='NA', types={'time_hour': 'VARCHAR'})",
            [str(data_file("weather.csv"))],
        )

    def data_file(self, name: str) -> Path:
        return self.archive if name == "flights.csv.zip" else data_file(name)

    def answers(self, question: str) -> list[dict[str, Any]]:
        files = (self.out / question).glob("*.jsonl")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self.sql.execute(sql).fetchall()


def _sampled() -> Iterator[str]:
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive:
        lines = TextIOWrapper(archive.open("flights.csv"), encoding="utf-8")
        for number, line in enumerate(lines):
            if number % EVERY == 0:
                yield line


async def kill_once_something_is_answered(made: World, handle: JobHandle) -> None:
    while not made.answers("hourly"):
        await handle.checkpoint()
        await asyncio.sleep(0.1)
    raise asyncio.CancelledError


@pytest.fixture(scope="module", params=["undisturbed", "killed"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("flights")
    made = World(folder)
    with mock.patch.object(example, "data_file", made.data_file):
        job = example.flight_questions(parallelism=2, out=made.out)
    checkpoints = sc.Checkpoints(to=folder / "checkpoints", mode="unaligned")
    killed = request.param == "killed"
    if killed:
        kill = partial(kill_once_something_is_answered, made)
        assert run_job(job, checkpoints=checkpoints, use=kill) is None
    before = len(made.answers("hourly"))
    result = run_job(job, checkpoints=checkpoints)
    assert result is not None
    assert (result.restored_from is not None) == killed
    assert (0 < before < len(made.answers("hourly"))) == killed
    return made


def test_flights_are_read_in_the_order_in_which_they_left(world: World) -> None:
    flights = read_flights(world.archive)
    left = [flight.due + flight.delay * 60_000 for flight in flights]
    due = [flight.due for flight in flights]

    assert left == sorted(left)
    assert due != sorted(due)
    assert len(flights) == world.ask("SELECT count(*) FROM flights")[0][0]


def test_hourly_traffic_is_what_sql_answers(world: World) -> None:
    found = [
        (row["airport"], row["begins"], *row["traffic"].values()) for row in world.answers("hourly")
    ]
    expected = world.ask(
        "SELECT origin, time_hour, count(*), sum(dep_delay)::BIGINT, max(dep_delay) "
        "FROM flights GROUP BY origin, time_hour"
    )
    assert sorted(found) == sorted(expected)
    assert len(found) > 5000


def test_daily_traffic_is_what_sql_answers(world: World) -> None:
    found = [
        (row["airport"], row["begins"], *row["traffic"].values()) for row in world.answers("daily")
    ]
    expected = world.ask(
        "SELECT origin, local_day, count(*), sum(dep_delay)::BIGINT, max(dep_delay) "
        "FROM flights GROUP BY origin, local_day"
    )
    assert sorted(found) == sorted(expected)
    assert {"2013-03-10", "2013-11-03"} <= {day for _, day, *_ in found}


def test_tours_are_what_sql_answers(world: World) -> None:
    found = [tuple(row.values()) for row in world.answers("tours")]
    expected = world.ask("""
        WITH begun AS (
            SELECT tailnum, due,
                coalesce(due - lag(due) OVER earlier >= INTERVAL 1 DAY, true)::INT AS is_first
            FROM flights WHERE tailnum IS NOT NULL
            WINDOW earlier AS (PARTITION BY tailnum ORDER BY due)
        ), numbered AS (
            SELECT *, sum(is_first) OVER (
                PARTITION BY tailnum ORDER BY due, is_first DESC ROWS UNBOUNDED PRECEDING
            ) AS tour FROM begun
        )
        SELECT tailnum, count(*), strftime(min(due), '%Y-%m-%dT%H:%M:%SZ'),
            strftime(max(due), '%Y-%m-%dT%H:%M:%SZ')
        FROM numbered GROUP BY tailnum, tour
    """)
    assert sorted(found) == sorted(expected)
    assert any(flights > 2 for _, flights, *_ in found)


def test_busiest_routes_are_what_sql_answers(world: World) -> None:
    found = [tuple(row.values()) for row in world.answers("routes")]
    expected = world.ask("""
        SELECT local_day, row_number() OVER busiest AS rank, origin, dest, count(*)
        FROM flights GROUP BY local_day, origin, dest
        WINDOW busiest AS (PARTITION BY local_day ORDER BY count(*) DESC, origin DESC, dest DESC)
        QUALIFY rank <= 5
    """)
    assert sorted(found) == sorted(expected)
    assert len(found) == 365 * 5


def test_weather_of_late_flights_is_what_sql_answers(world: World) -> None:
    found = [tuple(row.values()) for row in world.answers("delays")]
    expected = world.ask("""
        SELECT flights.origin, dest, strftime(due, '%Y-%m-%dT%H:%M:%SZ'), dep_delay,
            CASE WHEN is_near THEN weather.time_hour END,
            CASE WHEN is_near THEN weather.temp END,
            CASE WHEN is_near THEN wind_speed END
        FROM flights ASOF LEFT JOIN weather
            ON flights.origin = weather.origin AND due >= weather.time,
            LATERAL (SELECT due - weather.time <= INTERVAL 3 HOUR AS is_near)
        WHERE dep_delay >= 60
    """)
    assert Counter(found) == Counter(expected)
    assert {observed is None for *_, observed, _, _ in found} == {True, False}


def test_parameters_are_options() -> None:
    options = {option.name: option.default for option in example.flight_questions.options}

    assert options == {"limit": None, "parallelism": 1, "out": Path("flight-answers")}
    assert all(option.help for option in example.flight_questions.options)
