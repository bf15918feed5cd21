"""Standard output as a sink, at least once. Knows nothing of who reads it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence


def stdout() -> Stdout:
    """Make a sink that prints each record as `print` would, one line per record."""
    return Stdout()


class Stdout:
    """Prints records; made by `stdout()`."""

    async def write(self, records: Sequence[object], /) -> None:
        """Print `records` with one call and flush them.

        In a thread: a pipe that nobody reads blocks this sink and not the whole job."""
        await asyncio.to_thread(_print, "".join([f"{record}\n" for record in records]))


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
