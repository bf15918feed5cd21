"""Flights and weather of New York's airports in 2013, in the order in which they came to be.

The files have the months by their names and the airports one after another; here everything is
read, sorted in a thread, and given out as a source that can start anywhere.
"""

from __future__ import annotations

import asyncio
import csv
import zipfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path

import streamcp as sc
from streamcp.examples.flights import has_left

MINUTE = 60_000


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
class Observation:
    """The weather at an airport; `time` in milliseconds since the epoch, °F, miles per hour, None
    where nothing was measured."""

    airport: str
    time: int
    temperature: float | None
    wind: float | None


def read_flights(path: Path) -> list[Flight]:
    """Read all flights that left, in that order; the file has its months by their names."""
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        rows = csv.DictReader(TextIOWrapper(file, encoding="utf-8", newline=""))
        flights = [_flight(row) for row in rows if has_left(row)]
    return sorted(flights, key=lambda flight: flight.due + flight.delay * MINUTE)


def read_observations(path: Path) -> list[Observation]:
    """Read the weather of all airports in the order of its times."""
    with path.open(newline="", encoding="utf-8") as file:
        observations = [_observation(row) for row in csv.DictReader(file)]
    return sorted(observations, key=lambda observation: observation.time)


def _flight(row: dict[str, str]) -> Flight:
    return Flight(
        aircraft="" if row["tailnum"] == "NA" else row["tailnum"],
        origin=row["origin"],
        destination=row["dest"],
        due=_time(row) + int(row["minute"]) * MINUTE,
        delay=int(row["dep_delay"]),
    )


def _observation(row: dict[str, str]) -> Observation:
    return Observation(
        row["origin"], _time(row), _measured(row["temp"]), _measured(row["wind_speed"])
    )


def _measured(text: str) -> float | None:
    return None if text in ("", "NA") else float(text)


def _time(row: dict[str, str]) -> int:
    return round(datetime.fromisoformat(row["time_hour"]).timestamp() * 1000)


@sc.source(batches=True)
async def departures(
    position: int = 0, *, path: Path, limit: int | None = None
) -> AsyncIterator[tuple[Sequence[Flight], int]]:
    """The first `limit` flights; they are read and sorted in a thread."""
    flights = (await asyncio.to_thread(read_flights, path))[:limit]
    for start in range(position, len(flights), 1000):
        batch = flights[start : start + 1000]
        yield batch, start + len(batch)


@sc.source(batches=True)
async def weather(
    position: int = 0, *, path: Path
) -> AsyncIterator[tuple[Sequence[Observation], int]]:
    """All observations; they are read and sorted in a thread."""
    observations = await asyncio.to_thread(read_observations, path)
    for start in range(position, len(observations), 1000):
        batch = observations[start : start + 1000]
        yield batch, start + len(batch)
