"""Standard output as a sink, at least once. Knows nothing of who reads it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from aiofiles.threadpool import wrap


def stdout() -> Stdout:
    """Make a sink that prints each record as `print` would, one line per record."""
    return Stdout()


class Stdout:
    """Prints records; made by `stdout()`."""

    async def write(self, records: Sequence[object], /) -> None:
        """Print `records` with one call and flush them.

        In a thread: a pipe that nobody reads blocks this sink and not the whole job."""
        out = wrap(sys.stdout)
        await out.write("".join([f"{record}\n" for record in records]))
        await out.flush()
