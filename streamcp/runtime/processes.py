"""`executor="process"`: calls in processes forked from this one (see `executing`).

A forked process has the functions of all steps already: they are found by a number, and none is
ever pickled, so lambdas and local functions work (rule 17 of the API). Records and results are.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import count
from typing import Any

from streamcp.errors import DefinitionError
from streamcp.runtime.executing import Begin, Executing, worked_off

# Seconds between two looks of a forked process whether the job's own process still lives.
_LOOK_EVERY = 1.0

_functions: dict[int, Callable[..., Any]] = {}
_numbers = count()


class Processes(Executing):
    """Processes are forked at the first call, and when one of them has died."""

    def __init__(self, concurrency: int, name: str) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise DefinitionError(
                f'step {name!r}: executor="process" forks, which this platform cannot; write '
                'executor="thread"'
            )
        self._own: list[int] = []
        super().__init__(concurrency, name)

    def _new_executor(self) -> Executor:
        return ProcessPoolExecutor(
            self._concurrency,
            mp_context=multiprocessing.get_context("fork"),
            initializer=_begin_process,
            initargs=(os.getpid(),),
        )

    def _begin(self, fn: Callable[..., Any]) -> Begin:
        number = next(_numbers)
        _functions[number] = fn
        self._own.append(number)

        def begin(*arguments: Any) -> asyncio.Future[Any]:
            loop = asyncio.get_running_loop()
            return loop.run_in_executor(self._executor, _call, number, arguments)

        return begin

    async def close(self) -> None:
        """Wait for the functions that have not returned, for a time."""
        await super().close()
        for number in self._own:
            _functions.pop(number, None)


def _call(number: int, arguments: tuple[Any, ...]) -> Any:
    """Call a function, in a forked process."""
    try:
        return worked_off(_functions[number], arguments)
    except Exception as error:  # whatever a user's function raises
        if _can_be_sent(error):
            raise
        text = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"{text} (an error that cannot be pickled)") from None


def _can_be_sent(error: Exception) -> bool:
    """Say whether an error comes out at the other end: one that does not would break the pool."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # reading it back may run anything of the user's
        return False
    return True


def _begin_process(parent: int) -> None:
    """The job's signals are not this process's: it ends with the job's own process, whatever ends
    that one."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(_LOOK_EVERY)
    os._exit(1)
