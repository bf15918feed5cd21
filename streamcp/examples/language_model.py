"""A language model as one pays for it: a process of its own, asked over HTTP, slow, often busy.

    python -m streamcp.examples.language_model --port 8080 --latency 2s --log calls.jsonl

Each answer takes about `latency`, and no two are alike: asking again gives another one. Some
requests are refused for being too busy (500), some are never answered, and what is against the
rules is refused for good (422). The log has a line for each request that came ("asked") and for
each answer that was given ("answered"), written before it is sent: what the caller pays for.

`model_service` starts one, and ends it. Knows nothing of users and conversations.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

import streamcp as sc
from streamcp.config import seconds
from streamcp.examples.services import (
    UNTIL_STDIN_CLOSES,
    exit_when_stdin_closes,
    started,
    tell_port,
)

try:
    from aiohttp import ClientConnectionError, ClientSession, TCPConnector, web
except ImportError as error:
    raise sc.MissingExtra(
        'the language model needs aiohttp; pip install "streamcp[examples]"'
    ) from error

_BACKLOG = 4096
_FORBIDDEN = "password"


class ModelBusy(Exception):
    """The model could not answer now: worth another attempt."""


class ModelRefused(Exception):
    """The model does not answer such a question, however often it is asked."""


class ModelClient:
    """Asks a language model; any number of calls at once. Made by `model_service`."""

    def __init__(self, session: ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}/complete"

    async def complete(self, key: str, messages: Sequence[str]) -> str:
        """Ask for what follows `messages`; `key` is in the model's log.

        Raises ModelBusy if it may answer later, and ModelRefused if it never will."""
        body = orjson.dumps({"key": key, "messages": list(messages)})
        try:
            async with self._session.post(self._url, data=body) as response:
                answer = await response.read()
        except ClientConnectionError as error:
            raise ModelBusy(str(error)) from error
        if response.status == 422:
            raise ModelRefused(answer.decode())
        if response.status != 200:
            raise ModelBusy(f"status {response.status}")
        return str(orjson.loads(answer)["text"])


@asynccontextmanager
async def model_service(
    latency: str, busy: float, log: Path, connections: int
) -> AsyncIterator[ModelClient]:
    """Start a language model in a process of its own, and stop it at the end."""
    arguments = ("--latency", latency, "--busy", str(busy), "--log", str(log))
    async with (
        started("streamcp.examples.language_model", *arguments) as port,
        ClientSession(connector=TCPConnector(limit=connections)) as session,
    ):
        yield ModelClient(session, port)


# ---- the service


@dataclass
class CallLog:
    """Lines of JSON that are appended as a whole, to a file that outlives the process."""

    path: Path

    def __post_init__(self) -> None:
        """Open the file, and make it if need be."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._descriptor = os.open(self.path, flags, 0o666)

    def write(self, **line: str) -> None:
        """Append a line."""
        os.write(self._descriptor, orjson.dumps(line) + b"\n")


def make_app(latency: float, busy: float, log: CallLog) -> web.Application:
    """Make the web application that answers `POST /complete`; of the requests a part `busy` is
    refused, and a fifth as many are never answered."""
    chance = random.Random()

    async def complete(request: web.Request) -> web.Response:
        asked = orjson.loads(await request.read())
        key, messages = asked["key"], asked["messages"]
        log.write(key=key, outcome="asked")
        luck = chance.random()
        if luck < busy / 5:
            await asyncio.sleep(3600)
        await asyncio.sleep(latency * chance.uniform(0.5, 1.5))
        if luck < busy:
            return web.Response(status=500, text="too busy")
        if _FORBIDDEN in messages[-1]:
            return web.Response(status=422, text="that is against the rules")
        text = f"answer {len(messages) // 2 + 1}, {chance.getrandbits(64):016x}"
        log.write(key=key, outcome="answered", text=text)
        return web.Response(body=orjson.dumps({"text": text}), content_type="application/json")

    app = web.Application()
    app.router.add_post("/complete", complete)
    return app


async def serve(port: int, latency: float, busy: float, log: Path) -> None:
    """Answer until cancelled; print the port as a line of JSON as soon as it is open."""
    runner = web.AppRunner(make_app(latency, busy, CallLog(log)), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=_BACKLOG).start()
    tell_port(runner.addresses[0][1])
    await asyncio.Event().wait()


def main() -> None:
    """Run the service from the command line."""
    parser = argparse.ArgumentParser(description="Something like a language model.")
    parser.add_argument("--port", type=int, default=0, help="0: any free one (it is printed)")
    parser.add_argument("--latency", default="2s", help="of an answer, about")
    parser.add_argument("--busy", type=float, default=0.1, help="the part that is refused")
    parser.add_argument("--log", type=Path, default=Path("calls.jsonl"), help="of all calls")
    parser.add_argument(UNTIL_STDIN_CLOSES, action="store_true", help="end with the parent")
    options = parser.parse_args()
    if options.until_stdin_closes:
        exit_when_stdin_closes()
    latency = seconds(options.latency, setting="--latency")
    asyncio.run(serve(options.port, latency, options.busy, options.log))


if __name__ == "__main__":
    main()
