"""Those who asked for a checkpoint and wait for its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from streamcp.checkpoint.mode_policy import ChosenMode
from streamcp.checkpoint.statistics import CheckpointStatistics

Request = asyncio.Future[CheckpointStatistics]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a checkpoint beyond that it is complete.

    - `mode`: None for the job's.
    - `savepoint`: it stays until whoever asked has copied it.
    - `stop`: the job ends with it, once it is copied if it is to be."""

    mode: ChosenMode | None = None
    savepoint: bool = False
    stop: bool = False


PLAIN = Wish()


class Requests:
    """Numbers requests; the trigger policy hands the numbers out with what answers them."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: dict[int, tuple[Wish, Request]] = {}

    def new(self, wish: Wish) -> tuple[int, Request]:
        """Make a request: its number and what will get the answer."""
        self._count += 1
        future: Request = asyncio.get_running_loop().create_future()
        self._waiting[self._count] = wish, future
        return self._count, future

    def wishes(self, numbers: Iterable[int]) -> list[Wish]:
        """What those ask for that have not been answered and still wait."""
        waiting = [self._waiting[number] for number in numbers if number in self._waiting]
        return [wish for wish, future in waiting if not future.done()]

    def modes(self) -> list[ChosenMode]:
        """The modes that are asked for and may still be to come."""
        return [wish.mode for wish, _ in self._waiting.values() if wish.mode is not None]

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
        found = [self._waiting.pop(number) for number in numbers if number in self._waiting]
        return [future for _, future in found if not future.done()]
