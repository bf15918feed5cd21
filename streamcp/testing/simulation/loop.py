"""An asyncio event loop in virtual time, whose scheduler chooses among the ready callbacks.

Invariant: a run is a function of the seed. No thread is started, no real clock is read, nothing
depends on addresses or hash seeds. It must not know what runs in it.

Kept of asyncio's promises: plain callbacks run in the order of their registration; the callbacks
of one future, too; a timer never runs early. Not kept, because no program may rely on it: the
order in which *tasks* that are ready at once make their next step, and how many turns of the loop
a ready task waits. `run_in_executor` calls inline, at a later turn, and takes virtual time.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Literal, TypeAlias, TypeVar

from typing_extensions import TypeVarTuple, Unpack

from streamcp.testing.clock import ManualClock
from streamcp.testing.loop import WaitsForever

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_Lanes: TypeAlias = dict[Any, list[Any]]
Style: TypeAlias = Literal["asyncio", "shuffled", "held", "uneven"]
STYLES: tuple[Style, ...] = ("asyncio", "shuffled", "shuffled", "held", "uneven", "uneven")
"""How a schedule orders ready tasks: as asyncio does; in random order; some are held back for
some turns; some tasks are held back much longer than others."""

# How long a call "in a thread" waits for its thread, and works, in seconds.
_THREAD_TIMES = (0.0, 0.0, 0.0, 0.00005, 0.0005, 0.002)
_HELD = 0.4
# So many callbacks are enough to end whatever a stuck run has left.
_STEPS_TO_CLOSE = 5_000
# So many callbacks lie between two looks at what must always hold.
_LOOK_EVERY = 50
_LAZINESS = (0.0, 0.0, 0.2, 0.9)


class StepLimit(RuntimeError):
    """The run made more steps than it was allowed: it goes round in circles."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop whose time is that of `clock` and whose choices are those of `rnd`.

    `steps` counts the callbacks that were run. `at_step[n]` is called before callback n;
    `on_step`, if set, with the name of each callback before it runs; `look` now and then between
    two turns. Raises StepLimit after `limit` steps, and WaitsForever when nothing will ever happen
    again."""

    def __init__(
        self,
        rnd: random.Random,
        clock: ManualClock,
        *,
        style: Style = "shuffled",
        limit: int = 1_000_000,
        thread_times: Sequence[float] = _THREAD_TIMES,
    ) -> None:
        super().__init__()
        self.clock = clock
        self.steps = 0
        self.limit = limit
        self.style = style
        self.thread_seconds = 0.0
        self.at_step: dict[int, Callable[[], None]] = {}
        self.on_step: Callable[[str], None] | None = None
        self.look: Callable[[], None] = lambda: None
        self._look_at = _LOOK_EVERY
        self._rnd = rnd
        self._thread_times = thread_times
        self._salt = rnd.getrandbits(32)
        self._laziness: dict[str, float] = {}
        self._tasks = 0
        self.set_task_factory(self._new_task)

    def _new_task(self, _: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._tasks += 1
        return _NumberedTask(self._tasks, coro, loop=self, **options)

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self.clock.now

    def close_all(self) -> None:
        """Cancel every task that is left, wait for it, and close the loop.

        What does not end within some thousand steps is dropped."""
        self.look = lambda: None
        self.at_step.clear()
        self.limit = self.steps + _STEPS_TO_CLOSE
        with suppress(StepLimit, WaitsForever):
            self.run_until_complete(_cancel_all())
            self.run_until_complete(self.shutdown_asyncgens())
        self.close()

    # ---- one turn

    def _run_once(self) -> None:
        """Run what is ready now, in the order of the schedule; move time if nothing is."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        self._fire_timers(ready)
        turn = [handle for handle in ready if not handle._cancelled]
        ready.clear()
        if len(turn) > 1 and self.style != "asyncio":
            turn = self._arranged(turn)
        rest = iter(turn)
        try:
            self._run_all(rest)
        finally:
            ready.extendleft(reversed([*rest]))  # there are some only behind an error
        if self.steps >= self._look_at:
            self._look_at = self.steps + _LOOK_EVERY
            self.look()
        if self.steps > self.limit:
            raise StepLimit(f"no end after {self.limit} steps")

    def _run_all(self, turn: Iterator[Any]) -> None:
        at_step = self.at_step
        for handle in turn:
            if handle._cancelled:
                continue
            self.steps += 1
            if self.on_step is not None:
                self.on_step(_name_of(handle._callback))
            if self.steps in at_step:
                at_step.pop(self.steps)()
            handle._run()

    def _next_timer(self) -> float | None:
        """When the next timer is due, if there is any."""
        timers: Any = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        return timers[0]._when if timers else None

    def _fire_timers(self, ready: Any) -> None:
        """Make the timers that are due ready; if nothing else is, move on to the next one."""
        timers: Any = self._scheduled  # type: ignore[attr-defined]
        due = self._next_timer()
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if due is None:
                raise self._waits_forever()
            self.clock.advance(max(0.0, due - self.clock.now))
        now = self.clock.now + 1e-9
        while timers and timers[0]._when <= now:
            handle = heapq.heappop(timers)
            handle._scheduled = False
            ready.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is dropped when its time has come."""

    def _waits_forever(self) -> WaitsForever:
        names = sorted(task_label(task) for task in asyncio.all_tasks(self))
        return WaitsForever(
            "no callback is ready and no timer is set; these tasks wait: " + ", ".join(names)
        )

    # ---- the schedule

    def _arranged(self, turn: list[Any]) -> list[Any]:
        """Order the callbacks of a turn, and hold some of the tasks back."""
        lanes = _lanes(turn)
        if self.style != "shuffled":
            self._hold_some(lanes)
        order = [lane for lane, handles in lanes.items() for _ in handles]
        self._rnd.shuffle(order)
        rests = {lane: iter(handles) for lane, handles in lanes.items()}
        return [next(rests[lane]) for lane in order]

    def _hold_some(self, lanes: _Lanes) -> None:
        """Put some tasks off to the next turn, but never all. Lanes of several stay together."""
        held = [
            lane
            for lane, handles in lanes.items()
            if len(handles) == 1
            and _is_task(handles[0])
            and self._rnd.random() < self._held(handles[0]._callback.__self__)
        ]
        if len(held) == len(lanes):
            held.pop()
        for lane in held:
            self._ready += lanes.pop(lane)  # type: ignore[attr-defined]

    def _held(self, task: asyncio.Task[Any]) -> float:
        if self.style == "held":
            return _HELD
        label = task_label(task)
        laziness = self._laziness.get(label)
        if laziness is None:
            drawn = zlib.crc32(label.encode(), self._salt)
            laziness = self._laziness[label] = _LAZINESS[drawn % len(_LAZINESS)]
        return laziness

    # ---- what would be a thread

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Call `func` in this thread, in a later turn; the result comes later still.

        Whatever the call adds to `thread_seconds` is how much longer it takes."""
        future: asyncio.Future[T] = self.create_future()
        self.call_later(self._rnd.choice(self._thread_times), self._call, future, func, args)
        return future

    def _call(self, future: asyncio.Future[Any], func: Callable[..., Any], args: Any) -> None:
        if future.cancelled():
            return
        self.thread_seconds = 0.0
        result, error = None, None
        try:
            result = func(*args)
        # Whatever a thread's function raises belongs to whoever waits for it.
        except BaseException as raised:
            error = raised
        duration = self._rnd.choice(self._thread_times) + self.thread_seconds
        self.call_later(duration, _deliver, future, result, error)

    async def shutdown_default_executor(self, *_: Any) -> None:
        """There are no threads."""

    def _process_events(self, event_list: Any) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """There is nobody to be woken."""


class _NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number: a task group that fails cancels its tasks in the order of
    a set, which would be that of their addresses."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _lanes(turn: list[Any]) -> _Lanes:
    """Divide the callbacks of a turn into lanes; within a lane the order stays.

    A task that was not woken by a future is a lane of its own, tasks that the same future woke
    share one, and all plain callbacks share one with whatever their futures wake."""
    lanes: _Lanes = {}
    plain = {_future_of(handle) for handle in turn if not _is_task(handle)} - {None}
    for number, handle in enumerate(turn):
        lane: Any = None
        if _is_task(handle):
            future = _future_of(handle)
            lane = number if future is None else None if future in plain else future
        lanes.setdefault(lane, []).append(handle)
    return lanes


def _is_task(handle: Any) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)


def _future_of(handle: Any) -> Any:
    args = handle._args
    return args[0] if args and isinstance(args[0], asyncio.Future) else None


def _name_of(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return task_label(owner)
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def task_label(task: asyncio.Task[Any]) -> str:
    """The name of a task, or that of its coroutine: asyncio numbers the nameless ones, and the
    numbers run on from one run to the next."""
    name = task.get_name()
    if name.startswith("Task-"):
        return str(getattr(task.get_coro(), "__qualname__", "task"))
    return name
