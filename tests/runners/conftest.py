"""Every engine test runs twice: on asyncio's own loop, in virtual time and debug mode, and on
uvloop. A test that needs timers runs in virtual time only: `virtual_time`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from streamcp.runners.local import loop_factory
from streamcp.testing.loop import VirtualTimeLoop


def _virtual_time() -> asyncio.AbstractEventLoop:
    loop = VirtualTimeLoop()
    loop.set_debug(True)
    return loop


def pytest_asyncio_loop_factories(
    config: Any, item: Any
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": _virtual_time, "fastest": loop_factory()}
