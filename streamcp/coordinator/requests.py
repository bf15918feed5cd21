"""Those who asked for a checkpoint and wait for its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from streamcp.checkpoint.statistics import CheckpointStatistics

Request = asyncio.Future[CheckpointStatistics]


class Requests:
    """Numbers requests; the trigger policy hands the numbers out with what answers them."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: dict[int, Request] = {}

    def new(self) -> tuple[int, Request]:
        """Make a request: its number and what will get the answer."""
        self._count += 1
        future: Request = asyncio.get_running_loop().create_future()
        self._waiting[self._count] = future
        return self._count, future

    def completed(self, numbers: Iterable[int], statistics: CheckpointStatistics) -> None:
        """Answer with the figures of the checkpoint."""
        for future in self._take(numbers):
            future.set_result(statistics)

    def failed(self, numbers: Iterable[int], error: Exception) -> None:
        """Answer with the reason why there is no checkpoint."""
        for future in self._take(numbers):
            future.set_exception(error)
            future.exception()  # mark as retrieved: the asker may be gone

    def close(self, error: Exception) -> None:
        """Nobody will be answered any more."""
        self.failed(list(self._waiting), error)

    def _take(self, numbers: Iterable[int]) -> list[Request]:
        found = [self._waiting.pop(number, None) for number in numbers]
        return [future for future in found if future is not None and not future.done()]
