"""How late do flights leave in which weather? A job that waits for an HTTP service.

    streamcp run streamcp.examples.flights
    streamcp run streamcp.examples.flights --limit 50000 --latency 50ms --concurrency 200

Flights in file order → drop the cancelled ones → ask the weather service for the weather at the
airport in that hour → running statistics of delays per carrier and weather → JSON lines, exactly
once. Any two runs write the same lines, however often they were interrupted: the flights of a
carrier stay in file order, and all statistics count in whole minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

import streamcp as sc
from streamcp.examples.nycflights import data_file
from streamcp.examples.weather import Weather, WeatherClient, weather_service

Row: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True)
class Flight:
    """A flight that left; `hour` is the one in which it was due (ISO 8601, UTC)."""

    carrier: str
    number: int
    origin: str
    destination: str
    hour: str
    delay: int


@dataclass(frozen=True, slots=True)
class Departure:
    """A flight and the weather in which it was to leave."""

    flight: Flight
    weather: str


@dataclass(frozen=True, slots=True)
class DelayReport:
    """A departure, and the delays (in minutes) of its carrier in such weather so far."""

    carrier: str
    flight: int
    hour: str
    weather: str
    delay: int
    count: int
    mean: float
    highest: int


@dataclass
class Delays:
    """Running statistics of delays, in whole minutes."""

    count: int = 0
    total: int = 0
    highest: int = -(2**31)

    def add(self, delay: int) -> None:
        """Take one more delay into account."""
        self.count += 1
        self.total += delay
        self.highest = max(self.highest, delay)


@dataclass
class CarrierDelays:
    """The state per carrier: delays by weather."""

    by_weather: dict[str, Delays] = field(default_factory=dict)


def has_left(row: Row) -> bool:
    """Tell whether the flight was not cancelled."""
    return row["dep_time"] not in ("", "NA")


def parse(row: Row) -> Flight:
    """Take from a row what the job needs."""
    return Flight(
        carrier=row["carrier"],
        number=int(row["flight"]),
        origin=row["origin"],
        destination=row["dest"],
        hour=row["time_hour"],
        delay=int(row["dep_delay"]),
    )


def weather_class(weather: Weather | None) -> str:
    """Name the weather by what is worst about it."""
    if weather is None:
        return "unknown"
    if weather.precip:
        return "rain"  # or snow
    if weather.visib is not None and weather.visib < 3:
        return "fog"
    if weather.wind_speed is not None and weather.wind_speed >= 20:
        return "wind"
    return "calm"


async def look_up_weather(flight: Flight, service: WeatherClient) -> Departure:
    """Ask the weather service about a flight."""
    return Departure(flight, weather_class(await service.at(flight.origin, flight.hour)))


def update_delays(
    departure: Departure, state: CarrierDelays, context: sc.KeyContext[str]
) -> Iterable[DelayReport]:
    """Add a departure to the statistics of its carrier, and report them."""
    flight, weather = departure.flight, departure.weather
    delays = state.by_weather.setdefault(weather, Delays())
    delays.add(flight.delay)
    yield DelayReport(
        carrier=context.key,
        flight=flight.number,
        hour=flight.hour,
        weather=weather,
        delay=flight.delay,
        count=delays.count,
        mean=round(delays.total / delays.count, 2),
        highest=delays.highest,
    )


@sc.job
def flights(
    limit: int | None = 20_000,
    latency: str = "20ms",
    concurrency: int = 100,
    parallelism: int = 2,
    out: Path = Path("flights-out"),
) -> sc.Job:
    """Delays of flights by carrier and weather.

    limit: read so many flights
    latency: of the weather service, per answer
    concurrency: so many flights wait for the weather at once
    parallelism: subtasks that keep the statistics
    out: the directory for the JSON lines
    """
    job = sc.Job("flights", checkpoints=sc.Checkpoints(every="1s", to="./checkpoints"))
    rows = sc.files.read_csv(data_file("flights.csv.zip"), limit=limit)
    service = partial(weather_service, latency, connections=concurrency)
    (
        job.source(rows, name="rows")
        .filter(has_left)
        .map(parse)
        .map(look_up_weather, name="weather", uses=service, concurrency=concurrency)
        .key_by(lambda departure: departure.flight.carrier)
        .process(update_delays, name="delays", state=CarrierDelays, parallelism=parallelism)
        .sink(sc.files.json_lines(out), name="reports", parallelism=parallelism)
    )
    return job


if __name__ == "__main__":
    flights().run()
