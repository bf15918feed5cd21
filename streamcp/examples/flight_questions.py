"""Four questions about a year of flights, answered with windows of event time.

    streamcp run streamcp.examples.flight_questions
    streamcp run streamcp.examples.flight_questions --limit 30000 --parallelism 2

Flights come in the order in which they left; each counts at the time at which it was due, so they
are up to a day out of order. Every question writes its own directory of JSON lines:

- `hourly`: how late do they leave an airport, hour by hour?
- `daily`: the same by days of New York, of which one has 23 hours and one 25.
- `tours`: how often does an aircraft leave New York without a pause of a day?
- `routes`: on which five routes do most flights leave, day by day?
"""

from __future__ import annotations

import asyncio
import csv
import zipfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TypeAlias
from zoneinfo import ZoneInfo

import streamcp as sc
from streamcp.examples.flights import has_left
from streamcp.examples.nycflights import data_file

NEW_YORK = ZoneInfo("America/New_York")
DAY = sc.Tumbling("1d", timezone=NEW_YORK.key)
MINUTE = 60_000
RouteCount: TypeAlias = sc.WindowResult[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Flight:
    """A flight that left; `due` is when it was to leave, in milliseconds since the epoch, `delay`
    in minutes. The aircraft is "" where it is not known."""

    aircraft: str
    origin: str
    destination: str
    due: int
    delay: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """What leaves an airport in a while, and how late: minutes in all, and of the latest one."""

    flights: int
    delay: int
    worst: int


@dataclass(frozen=True, slots=True)
class AirportTraffic:
    """The traffic of an airport in an hour or on a day that begins so (ISO 8601)."""

    airport: str
    begins: str
    traffic: Traffic


@dataclass(frozen=True, slots=True)
class Tour:
    """Flights of an aircraft that followed one another within a day; when the first and the last
    were due (ISO 8601)."""

    aircraft: str
    flights: int
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class RankedRoute:
    """One of the five busiest routes of a day."""

    day: str
    rank: int
    origin: str
    destination: str
    flights: int


# ---- the flights, in the order in which they left


def read_flights(path: Path) -> list[Flight]:
    """Read all flights that left, in that order; the file has its months by their names."""
    flights = [_flight(row) for row in _rows(path) if has_left(row)]
    return sorted(flights, key=lambda flight: flight.due + flight.delay * MINUTE)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        yield from csv.DictReader(TextIOWrapper(file, encoding="utf-8", newline=""))


def _flight(row: dict[str, str]) -> Flight:
    hour = datetime.fromisoformat(row["time_hour"])
    return Flight(
        aircraft="" if row["tailnum"] == "NA" else row["tailnum"],
        origin=row["origin"],
        destination=row["dest"],
        due=round(hour.timestamp() * 1000) + int(row["minute"]) * MINUTE,
        delay=int(row["dep_delay"]),
    )


@sc.source(batches=True)
async def departures(
    position: int = 0, *, path: Path, limit: int | None = None
) -> AsyncIterator[tuple[Sequence[Flight], int]]:
    """The first `limit` flights; they are read and sorted in a thread."""
    flights = (await asyncio.to_thread(read_flights, path))[:limit]
    for start in range(position, len(flights), 1000):
        batch = flights[start : start + 1000]
        yield batch, start + len(batch)


# ---- the questions


def traffic(
    flights: sc.Stream[Flight], windows: sc.Windows, name: str
) -> sc.Stream[sc.WindowResult[str, Traffic]]:
    """Count the flights of each airport, and their delays."""
    return (
        flights.key_by(lambda flight: flight.origin)
        .window(windows, name=name)
        .aggregate(
            sc.Count(),
            sc.Sum(lambda flight: flight.delay),
            sc.Max(lambda flight: flight.delay),
            into=Traffic,
        )
    )


def hourly(flights: sc.Stream[Flight]) -> sc.Stream[AirportTraffic]:
    """Tell how late flights leave an airport, hour by hour."""
    hours = traffic(flights, sc.Tumbling("1h"), "hourly")
    return hours.map(lambda hour: AirportTraffic(hour.key, moment(hour.start), hour.value))


def daily(flights: sc.Stream[Flight]) -> sc.Stream[AirportTraffic]:
    """Tell the same by days of New York."""
    days = traffic(flights, DAY, "daily")
    return days.map(lambda day: AirportTraffic(day.key, date(day.start), day.value))


def tours(flights: sc.Stream[Flight]) -> sc.Stream[Tour]:
    """Tell how often an aircraft leaves New York without a pause of a day."""
    return (
        flights.filter(lambda flight: flight.aircraft != "", parallelism=1)
        .key_by(lambda flight: flight.aircraft)
        .window(sc.Session("1d"), name="tours")
        .aggregate(
            sc.Count(),
            sc.First(lambda flight: flight.due),
            sc.Last(lambda flight: flight.due),
            into=lambda flights, first, last: (flights, moment(first), moment(last)),
        )
        .map(lambda tour: Tour(tour.key, *tour.value))
    )


def routes(flights: sc.Stream[Flight]) -> sc.Stream[RankedRoute]:
    """Tell on which five routes most flights leave, day by day."""
    counts = (
        flights.key_by(lambda flight: (flight.origin, flight.destination))
        .window(DAY, name="routes")
        .count()
    )
    # Of two routes with as many flights the one with the later name is before the other.
    busiest: sc.TopN[RouteCount] = sc.TopN(5, by=lambda count: (count.value, count.key))
    return (
        counts.key_by(lambda count: count.start)
        .window(DAY, name="busiest")
        .aggregate(busiest)
        .flat_map(ranked)
    )


def ranked(day: sc.WindowResult[int, list[RouteCount]]) -> Iterator[RankedRoute]:
    """Give the places of a day."""
    for rank, route in enumerate(day.value, 1):
        yield RankedRoute(date(day.start), rank, *route.key, route.value)


def moment(ms: int) -> str:
    """Write a time as the data do."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def date(ms: int) -> str:
    """Write the day that it is in New York."""
    return f"{datetime.fromtimestamp(ms / 1000, NEW_YORK):%Y-%m-%d}"


@sc.job
def flight_questions(
    limit: int | None = None, parallelism: int = 1, out: Path = Path("flight-answers")
) -> sc.Job:
    """Questions about a year of flights.

    limit: read so many flights
    parallelism: subtasks of each question
    out: the directory for the answers
    """
    checkpoints = sc.Checkpoints(every="1s", to="./checkpoints")
    job = sc.Job("flight-questions", parallelism=parallelism, checkpoints=checkpoints)
    flights = job.source(
        departures(path=data_file("flights.csv.zip"), limit=limit),
        name="departures",
        watermarks=sc.Watermarks(lambda flight: flight.due, out_of_orderness="1d"),
    )
    for question in (hourly, daily, tours, routes):
        name = question.__name__
        question(flights).sink(sc.files.json_lines(out / name), name=f"{name}-answers")
    return job


if __name__ == "__main__":
    flight_questions().run()
