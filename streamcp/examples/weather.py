"""A weather service as one finds it: a process of its own, asked over HTTP, slow to answer.

    python -m streamcp.examples.weather --port 8080 --latency 20ms
    curl 'http://127.0.0.1:8080/weather?origin=JFK&hour=2013-01-01T17:00:00Z'

`weather_service` starts one, and ends it. Knows nothing of flights.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

import streamcp as sc
from streamcp.config import seconds
from streamcp.examples.nycflights import data_file
from streamcp.examples.services import (
    UNTIL_STDIN_CLOSES,
    exit_when_stdin_closes,
    started,
    tell_port,
)

try:
    from aiohttp import ClientSession, TCPConnector, web
    from yarl import URL
except ImportError as error:
    raise sc.MissingExtra(
        'the weather service needs aiohttp; pip install "streamcp[examples]"'
    ) from error

# More than any job asks for at once: Linux keeps up to so many waiting connections anyway.
_BACKLOG = 4096


@dataclass(frozen=True, slots=True)
class Weather:
    """One hour at one airport, in the units of the data; None where nothing was measured."""

    temp: float | None
    wind_speed: float | None
    precip: float | None
    visib: float | None


class WeatherClient:
    """Asks a weather service; any number of calls at once. Made by `weather_service`."""

    def __init__(self, session: ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}/weather"

    async def at(self, origin: str, hour: str) -> Weather | None:
        """Ask for the weather at an airport in the hour that begins at `hour` (ISO 8601, UTC).

        Returns None where there is no observation; raises aiohttp.ClientError if the service
        fails."""
        # Encoded by hand: yarl would parse each query anew.
        url = URL(f"{self._url}?origin={origin}&hour={hour}", encoded=True)
        async with self._session.get(url) as response:
            if response.status == 404:
                return None
            response.raise_for_status()
            return Weather(**orjson.loads(await response.read()))


@asynccontextmanager
async def weather_service(
    latency: str = "20ms", connections: int = 100
) -> AsyncIterator[WeatherClient]:
    """Start a weather service in a process of its own, and stop it at the end.

    Each answer takes `latency`; up to `connections` calls are under way at once, the rest wait."""
    seconds(latency, setting="latency")
    async with (
        started("streamcp.examples.weather", "--latency", latency) as port,
        ClientSession(connector=TCPConnector(limit=connections)) as session,
    ):
        yield WeatherClient(session, port)


def load_weather(path: Path) -> Mapping[tuple[str, str], bytes]:
    """Read the hourly observations: the body of the answer by origin and hour."""
    with path.open(newline="", encoding="utf-8") as file:
        return {(row["origin"], row["time_hour"]): _body(row) for row in csv.DictReader(file)}


def _body(row: Mapping[str, str]) -> bytes:
    return orjson.dumps(
        Weather(
            temp=_measured(row["temp"]),
            wind_speed=_measured(row["wind_speed"]),
            precip=_measured(row["precip"]),
            visib=_measured(row["visib"]),
        )
    )


def _measured(text: str) -> float | None:
    return None if text in ("", "NA") else float(text)


def make_app(weather: Mapping[tuple[str, str], bytes], latency: float) -> web.Application:
    """Make the web application that answers `GET /weather?origin=…&hour=…` after `latency` s."""

    async def answer(request: web.Request) -> web.Response:
        query = request.query
        if "origin" not in query or "hour" not in query:
            return web.Response(status=400, text="write /weather?origin=JFK&hour=...")
        await asyncio.sleep(latency)
        body = weather.get((query["origin"], query["hour"]))
        if body is None:
            return web.Response(status=404, text="no observation")
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/weather", answer)
    return app


async def serve(port: int, latency: float) -> None:
    """Answer until cancelled; print the port as a line of JSON as soon as it is open."""
    app = make_app(load_weather(data_file("weather.csv")), latency)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, backlog=_BACKLOG)
    await site.start()
    tell_port(runner.addresses[0][1])
    await asyncio.Event().wait()


def main() -> None:
    """Run the service from the command line."""
    parser = argparse.ArgumentParser(description="Hourly weather of New York's airports in 2013.")
    parser.add_argument("--port", type=int, default=0, help="0: any free one (it is printed)")
    parser.add_argument("--latency", default="20ms", help="of each answer")
    parser.add_argument(UNTIL_STDIN_CLOSES, action="store_true", help="end with the parent")
    options = parser.parse_args()
    if options.until_stdin_closes:
        exit_when_stdin_closes()
    asyncio.run(serve(options.port, seconds(options.latency, setting="--latency")))


if __name__ == "__main__":
    main()
