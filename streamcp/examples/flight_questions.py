"""Five questions about a year of flights, answered with windows and joins of event time.

    streamcp run streamcp.examples.flight_questions
    streamcp run streamcp.examples.flight_questions --limit 30000 --parallelism 2

Flights come in the order in which they left; each counts at the time at which it was due, so they
are up to a day out of order. Every question writes its own directory of JSON lines:

- `hourly`: how late do they leave an airport, hour by hour?
- `daily`: the same by days of New York, of which one has 23 hours and one 25.
- `tours`: how often does an aircraft leave New York without a pause of a day?
- `routes`: on which five routes do most flights leave, day by day?
- `delays`: what was the weather, as last observed, when a flight was due that left an hour late?
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias
from zoneinfo import ZoneInfo

import streamcp as sc
from streamcp.examples.flight_sources import Flight, Observation, departures, weather
from streamcp.examples.nycflights import data_file

NEW_YORK = ZoneInfo("America/New_York")
DAY = sc.Tumbling("1d", timezone=NEW_YORK.key)
RouteCount: TypeAlias = sc.WindowResult[tuple[str, str], int]


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


@dataclass(frozen=True, slots=True)
class Delay:
    """A flight that left an hour late or later, and the weather when it was due (ISO 8601): None if
    nothing was observed in the three hours before."""

    origin: str
    destination: str
    due: str
    minutes: int
    observed: str | None
    temperature: float | None
    wind: float | None


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
    return traffic(flights, sc.Tumbling("1h"), "hourly").map(of_hour)


def daily(flights: sc.Stream[Flight]) -> sc.Stream[AirportTraffic]:
    """Tell the same by days of New York."""
    return traffic(flights, DAY, "daily").map(of_day)


def of_hour(hour: sc.WindowResult[str, Traffic]) -> AirportTraffic:
    """Name the hour."""
    return AirportTraffic(hour.key, moment(hour.start), hour.value)


def of_day(day: sc.WindowResult[str, Traffic]) -> AirportTraffic:
    """Name the day."""
    return AirportTraffic(day.key, date(day.start), day.value)


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
        .map(tour)
    )


def tour(session: sc.WindowResult[str, tuple[int, str, str]]) -> Tour:
    """Name the aircraft."""
    return Tour(session.key, *session.value)


def routes(flights: sc.Stream[Flight]) -> sc.Stream[RankedRoute]:
    """Tell on which five routes most flights leave, day by day."""
    return (
        flights.key_by(lambda flight: (flight.origin, flight.destination))
        .window(DAY, name="routes")
        .count()
        .top(5, by=lambda route: (route.value, route.key), name="busiest")
        .flat_map(ranked)
    )


def ranked(day: sc.WindowResult[None, list[RouteCount]]) -> Iterator[RankedRoute]:
    """Give the places of a day."""
    for rank, route in enumerate(day.value, 1):
        yield RankedRoute(date(day.start), rank, *route.key, route.value)


def delays(flights: sc.Stream[Flight], observations: sc.Stream[Observation]) -> sc.Stream[Delay]:
    """Tell the weather when a flight was due that left an hour late or later."""
    late = flights.filter(lambda flight: flight.delay >= 60, parallelism=1)
    return late.key_by(lambda flight: flight.origin).join_asof(
        observations.key_by(lambda observation: observation.airport),
        in_weather,
        tolerance="3h",
        how="left",
        name="delays",
    )


def in_weather(flight: Flight, last: Observation | None) -> Delay:
    """Put a flight and the last observation before it together."""
    return Delay(
        flight.origin,
        flight.destination,
        moment(flight.due),
        flight.delay,
        observed=moment(last.time) if last else None,
        temperature=last.temperature if last else None,
        wind=last.wind if last else None,
    )


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
    observations = job.source(
        weather(path=data_file("weather.csv")),
        name="weather",
        watermarks=sc.Watermarks(lambda observation: observation.time),
    )
    answers: dict[str, sc.Stream[object]] = {
        "hourly": hourly(flights),
        "daily": daily(flights),
        "tours": tours(flights),
        "routes": routes(flights),
        "delays": delays(flights, observations),
    }
    for question, answer in answers.items():
        answer.sink(sc.files.json_lines(out / question), name=f"{question}-answers")
    return job


if __name__ == "__main__":
    flight_questions().run()
