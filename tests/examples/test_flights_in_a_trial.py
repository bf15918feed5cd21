"""The example under trial: its statistics go on through a crash, and nothing of it is outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamcp as sc
from streamcp.examples.flights import CarrierDelays, flights
from streamcp.examples.weather import Weather


class CalmWeather:
    async def at(self, airport: str, hour: str) -> Weather | None:
        return None


def row(number: int, delay: int) -> dict[str, Any]:
    hour = "2013-01-01T05:00:00Z"
    return {
        **{"carrier": "UA", "flight": number, "origin": "EWR", "dest": "IAH"},
        **{"time_hour": hour, "dep_time": "517", "dep_delay": str(delay)},
    }


async def test_statistics_go_on_through_a_crash(tmp_path: Path) -> None:
    job = flights(out=tmp_path)
    async with sc.testing.trial(job, services={"weather": CalmWeather()}) as trial:
        trial.feed("rows", [row(1, 10), {**row(2, 0), "dep_time": "NA"}])
        await trial.checkpoint()
        trial.feed("rows", [row(3, 20)])
        await trial.settle()
        await trial.crash_and_restore()
        reports = await trial.results("reports")
        assert [(one.flight, one.count, one.mean) for one in reports] == [
            (1, 1, 10.0),
            (3, 2, 15.0),
        ]
        state: CarrierDelays = await trial.state("delays", "UA")
        assert state.by_weather["unknown"].highest == 20
    assert [*map(str, tmp_path.iterdir())] == []  # noqa: ASYNC240
