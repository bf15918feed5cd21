"""A fixed pool of workers that await a user's coroutine function, with timeout and retry.

A user's coroutine must run inside a task of its own (timeouts and cancel scopes look at the
current task), but a task per record would be dear: so each worker is one task that takes call
after call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any

from streamcp.clock import Clock
from streamcp.config import Retry
from streamcp.graph.logical import Node
from streamcp.operators.calls import OWN_CALL
from streamcp.operators.steps import AsyncOptions
from streamcp.runtime.blocking import BLOCKING, MEASURED
from streamcp.runtime.calling import failure_of
from streamcp.runtime.calls import Calls
from streamcp.runtime.deadlines import Deadlines
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.limited import Limited
from streamcp.runtime.meters import StepMeter
from streamcp.runtime.throttle import StepLimits

# How long one worker may go from call to call, none of which waits, before others get their turn.
SHARE = 0.001
# So many calls are made between two looks at the clock, unless they are long: a look costs as
# much as a short call.
ROW = 8
_NEVER = _ALWAYS = float("inf")


class _Worker:
    """One task of the pool, and the call that it makes. `serial` and `timed_out` are for
    `Deadlines`; `variables` are the context variables of its task, `pristine` as they were."""

    __slots__ = ("pristine", "serial", "task", "ticket", "timed_out", "variables")

    def __init__(self, calls: Calls) -> None:
        self.ticket: Any = None
        self.variables = copy_context()
        self.variables.run(OWN_CALL.set, lambda: calls.call_id(self.ticket))
        self.pristine = self.variables.copy()
        self.task: asyncio.Task[Any] | None = None
        self.serial = 0
        self.timed_out = False

    def has_set_variables(self) -> bool:
        """Say whether a call has left a context variable behind."""
        try:
            return self.variables != self.pristine
        except Exception:  # a value whose == raises was set, else nothing would be compared
            return True

    def interrupt(self) -> None:
        """End the call by a cancellation, which `_end_attempt` takes back."""
        assert self.task is not None
        self.task.cancel()


class CallPool:
    """Makes calls, at most `concurrency` at once.

    Each call sees the context variables of whoever started the job, and not what another call has
    set. A worker would hand that on to its next call; so as soon as a function turns out to set
    one, the pool is *careful*: each call is awaited step by step, in a context of its own (see
    `blocking.Watched`). It is so for a while, too, when a row of calls has taken long enough to
    have held the event loop: not for good, since the machine may have had other things to do."""

    def __init__(
        self,
        calls: Calls,
        options: AsyncOptions,
        context: TaskContext,
        meter: StepMeter,
        node: Node,
        limits: StepLimits | None,
        chance: Callable[[], float],
    ) -> None:
        """With `limits`, calls begin as they allow; `chance` draws the jitter of retries."""
        self.paused = False
        self._closed = False
        self._calls = calls
        self._options = options
        self._clock: Clock = context.clock
        self._blocking = context.blocking
        self._meter = meter
        self._node = node
        self._careful = False
        self._careful_for = 0.0  # so many calls
        self._workers: list[_Worker] = []
        self._idle: deque[asyncio.Future[None]] = deque()
        self._waking = False
        self._running: _Worker | None = None  # the worker that made the last step
        self._chance = chance
        self._limited: Limited | None = None
        if limits is not None:
            self._limited = Limited(calls, limits, context, node, self.wake)
        self._source = self._limited or calls
        self._may_be_simple = (options.timeout, options.retry, limits) == (None, None, None)
        self._simple = self._may_be_simple
        self._deadlines: Deadlines | None = None
        if options.timeout is not None:
            self._deadlines = Deadlines(options.timeout, context.clock)

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Start the workers as children of `group`."""
        for number in range(self._options.concurrency):
            worker = _Worker(self._calls)
            name = f"{self._node.label} call {number}"
            worker.task = group.create_task(self._work(worker), name=name, context=worker.variables)
            self._workers.append(worker)

    def wake(self) -> None:
        """There may be calls to start.

        One worker is woken; only if calls are still waiting after it had its turn, two more are,
        then four: functions that never wait keep one worker busy and the others asleep."""
        if self._limited is not None:
            self._limited.wake_in_time()
        if self._idle and not self._waking and not self.paused and self._source.waiting:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake_some, 1)

    def _wake_some(self, count: int) -> None:
        woken = 0 if self.paused else min(count, len(self._idle), self._source.waiting)
        for _ in range(woken):
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
        self._waking = woken > 0
        if woken:
            asyncio.get_running_loop().call_soon(self._wake_some, 2 * count)

    def pause(self) -> None:
        """Start no further call, until it is told to `go_on`."""
        self.paused = True
        if self._limited is not None:
            self._limited.pause()

    def go_on(self) -> None:
        """Start calls again."""
        self.paused = False
        self.wake()

    async def _wait_idle(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        await future

    async def _work(self, worker: _Worker) -> None:
        clock = self._clock
        since = clock.monotonic()
        until = since + SHARE
        longest = 1
        while not self._closed:
            more = await self._row(worker, longest)
            if self._closed:
                return
            if not more and (self.paused or not self._calls.refill()):
                await self._wait_idle()
                self._running = None
                since = _NEVER
            now = clock.monotonic()
            if now - since >= BLOCKING or worker.has_set_variables():
                self._be_careful(_ALWAYS if worker.has_set_variables() else MEASURED)
            since = now
            if self._running is not worker:
                # Another worker has run: this one has waited, and begins anew.
                longest, until = ROW, now + SHARE
            elif now >= until:
                longest = 1  # calls that are so long are looked at one by one
                await asyncio.sleep(0)
                until = clock.monotonic() + SHARE
            else:
                longest = ROW

    async def _row(self, worker: _Worker, longest: int) -> bool:  # noqa: PLR0912 - a hot loop
        """Make up to `longest` calls in a row, until one has waited; False if there are no more.

        Calls without timeout, retry and limits are made here, with as little as possible around
        each."""
        calls, simple = self._calls, self._simple
        start, direct, in_place = self._source.start, calls.direct, calls.in_place
        for _ in range(longest):
            if self.paused or self._closed:
                return False
            try:
                ticket = start()
            except IndexError:
                return False
            self._running = worker
            worker.ticket = ticket
            if not simple:
                await self._attempts(worker, ticket)
            else:
                try:
                    if direct is not None:
                        chunk, i = ticket
                        result = await direct(chunk.records[i])
                    else:
                        result = await calls.call(ticket, 1)
                except asyncio.CancelledError as error:
                    calls.failed(ticket, failure_of(error), 1)
                except Exception as error:  # whatever a user's coroutine raises
                    calls.failed(ticket, error, 1)
                else:
                    if not in_place:
                        calls.succeeded(ticket, result)
                    else:
                        chunk.results[i] = result
                        if not calls.told:
                            calls.tell()
            if self._running is not worker:
                return True
        return True

    async def _attempts(self, worker: _Worker, ticket: Any) -> None:
        """Call until it succeeds or has failed as often as the retry allows."""
        retry, limited = self._options.retry, self._limited
        make = self._attempt if limited is None else self._counted
        attempt = 0
        while True:
            attempt += 1
            try:
                result = await make(worker, ticket, attempt)
            except Exception as error:  # whatever a user's coroutine raises
                again = _again(retry, error, attempt)
                if not again:
                    self._calls.failed(ticket, error, attempt)
                if self._calls.wait_returned is not None:
                    await self._calls.wait_returned()
                if not again:
                    return
            else:
                self._calls.succeeded(ticket, result)
                return
            assert retry is not None
            self._meter.retries += 1
            await asyncio.sleep(retry.delay(attempt, self._chance()))
            if limited is not None:
                await limited.wait_allowed(ticket)

    async def _counted(self, worker: _Worker, ticket: Any, attempt: int) -> Any:
        """Make an attempt, and tell the breaker how it ended."""
        limited = self._limited
        assert limited is not None
        number = limited.began()
        try:
            result = await self._attempt(worker, ticket, attempt)
        except Exception as error:
            limited.ended(number, error)
            raise
        limited.ended(number, None)
        return result

    async def _attempt(self, worker: _Worker, ticket: Any, attempt: int) -> Any:
        worker.serial += 1
        worker.timed_out = False
        if self._deadlines is not None:
            self._deadlines.watch(worker)
        try:
            result = await self._called(worker, ticket, attempt)
        except asyncio.CancelledError as error:
            self._end_attempt(worker)
            raise failure_of(error) from error
        except BaseException:
            self._end_attempt(worker)
            raise
        self._end_attempt(worker)
        return result

    def _called(self, worker: _Worker, ticket: Any, attempt: int) -> Awaitable[Any]:
        if not self._careful:
            return self._calls.call(ticket, attempt)
        self._careful_for -= 1
        if self._careful_for <= 0:
            self._careful, self._simple = False, self._may_be_simple
        call = partial(self._calls.call, ticket, attempt)
        return self._blocking.watched(self._node, call, worker.pristine.copy())

    def _be_careful(self, calls: float) -> None:
        """Await the next calls step by step."""
        self._careful, self._simple = True, False
        self._careful_for = max(self._careful_for, calls)

    def _end_attempt(self, worker: _Worker) -> None:
        """Take the timeout's cancellation back; raise TimeoutError if there was one, whatever the
        coroutine made of it: it is too late all the same."""
        worker.serial += 1
        if worker.timed_out:
            task = worker.task
            assert task is not None
            if task.uncancel() > 0:
                raise asyncio.CancelledError  # the pool is being ended as well
            raise TimeoutError(f"no result within {self._options.timeout:g} s") from None

    def close(self) -> None:
        """End the timer, and every worker as soon as it has no call.

        Calls are cancelled by the task group alone, and once: a second cancellation would
        interrupt what they do to clean up."""
        self._closed = True
        for future in self._idle:
            if not future.done():
                future.set_result(None)
        if self._deadlines is not None:
            self._deadlines.close()
        if self._limited is not None:
            self._limited.close()


def _again(retry: Retry | None, error: Exception, attempt: int) -> bool:
    return retry is not None and attempt < retry.attempts and isinstance(error, retry.on)
