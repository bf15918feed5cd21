from __future__ import annotations

from typing import cast

import pytest

import streamcp as sc
from streamcp.examples.flights import (
    CarrierDelays,
    DelayReport,
    Departure,
    Flight,
    flights,
    has_left,
    look_up_weather,
    parse,
    update_delays,
    weather_class,
)
from streamcp.examples.weather import Weather, WeatherClient

ROW = {
    "carrier": "UA",
    "flight": "1545",
    "origin": "EWR",
    "dest": "IAH",
    "dep_time": "517",
    "dep_delay": "-2",
    "time_hour": "2013-01-01T10:00:00Z",
}
FLIGHT = Flight("UA", 1545, "EWR", "IAH", "2013-01-01T10:00:00Z", -2)
FINE = Weather(temp=39.02, wind_speed=12.7, precip=0.0, visib=10.0)


def test_row_becomes_a_flight() -> None:
    assert parse(ROW) == FLIGHT


@pytest.mark.parametrize("dep_time", ["", "NA"])
def test_cancelled_flight_has_not_left(dep_time: str) -> None:
    assert has_left(ROW)
    assert not has_left({**ROW, "dep_time": dep_time})


@pytest.mark.parametrize(
    ("weather", "name"),
    [
        (None, "unknown"),
        (FINE, "calm"),
        (Weather(20.0, 30.0, 0.1, 1.0), "rain"),
        (Weather(20.0, 30.0, None, 1.0), "fog"),
        (Weather(20.0, 30.0, 0.0, None), "wind"),
        (Weather(None, None, None, None), "calm"),
    ],
)
def test_weather_is_named_by_what_is_worst(weather: Weather | None, name: str) -> None:
    assert weather_class(weather) == name


class FakeService:
    async def at(self, origin: str, hour: str) -> Weather | None:
        return FINE if (origin, hour) == ("EWR", "2013-01-01T10:00:00Z") else None


async def test_weather_is_that_of_the_airport_and_hour() -> None:
    departure = await look_up_weather(FLIGHT, cast("WeatherClient", FakeService()))

    assert departure == Departure(FLIGHT, "calm")


def test_statistics_are_kept_per_weather() -> None:
    context = cast("sc.KeyContext[str]", type("Context", (), {"key": "UA"})())
    state = CarrierDelays()
    reports: list[DelayReport] = []
    for delay, weather in [(-2, "calm"), (5, "calm"), (-3, "fog"), (1, "calm")]:
        flight = Flight("UA", 1, "EWR", "IAH", "h", delay)
        reports += update_delays(Departure(flight, weather), state, context)

    assert reports == [
        DelayReport("UA", 1, "h", "calm", -2, count=1, mean=-2.0, highest=-2),
        DelayReport("UA", 1, "h", "calm", 5, count=2, mean=1.5, highest=5),
        DelayReport("UA", 1, "h", "fog", -3, count=1, mean=-3.0, highest=-3),
        DelayReport("UA", 1, "h", "calm", 1, count=3, mean=1.33, highest=5),
    ]


def test_parameters_are_options() -> None:
    options = {option.name: option.default for option in flights.options}

    assert list(options) == ["limit", "latency", "concurrency", "parallelism", "out"]
    assert all(option.help for option in flights.options)
