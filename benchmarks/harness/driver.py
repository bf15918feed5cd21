"""The process of a driver: `python -m benchmarks.harness.driver SCHEDULE SOCKET`.

It sends whoever connects when the schedule began, and then, every tenth of a millisecond, how many
records are due, each a number of eight bytes. The schedule begins with the first connection. A
peer that does not read is not waited for: the next number says all that the lost one said. When
the last record has become due it prints how late each was, and stays for those that connect later.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from array import array

from benchmarks.harness.histogram import Histogram
from benchmarks.harness.open_loop import NUMBER, Schedule, Times, now, use_core_of

# Shorter than any percentile of interest by far; a thread cannot sleep for much less.
TICK = 0.0001
HEAD_START = 100_000_000  # nanoseconds from the first connection to the beginning


class _Driver:
    def __init__(self, times: Times, listener: socket.socket) -> None:
        self._times = times
        self._listener = listener
        self._peer: socket.socket | None = None
        self._begun = 0
        self._due = 0
        self._late = array("q")

    def run(self) -> None:
        """Send, until this process is killed."""
        self._accept()
        self._listener.setblocking(False)
        _go_first(True)
        while self._due < self._times.count:
            self._tick()
            time.sleep(TICK)
        _go_first(False)
        print(json.dumps(Histogram(self._late).buckets), flush=True)
        self._listener.setblocking(True)
        while True:
            self._accept()

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except BlockingIOError:
            return
        self._begun = self._begun or now() + HEAD_START
        if self._peer is not None:
            self._peer.close()
        peer.setblocking(False)
        self._peer = peer
        self._send(self._begun)
        self._send(self._due)

    def _tick(self) -> None:
        self._accept()
        elapsed = now() - self._begun
        due = self._times.due(elapsed)
        if due == self._due:
            return
        intended = self._times.intended
        self._late.extend([elapsed - intended(index) for index in range(self._due, due)])
        self._due = due
        self._send(due)

    def _send(self, number: int) -> None:
        if self._peer is None:
            return
        try:
            self._peer.send(number.to_bytes(NUMBER, sys.byteorder))
        except BlockingIOError:
            pass  # its buffer is full
        except OSError:  # it has died
            self._peer.close()
            self._peer = None


def _go_first(first: bool) -> None:
    """Be woken at once whatever else runs on this core, where the system permits that: what a
    driver does in a tick is short."""
    if hasattr(os, "sched_setscheduler"):
        policy, priority = (os.SCHED_FIFO, 1) if first else (os.SCHED_OTHER, 0)
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, policy, os.sched_param(priority))


def _main(schedule: str, path: str) -> None:
    use_core_of(driver=True)
    times = Schedule(**json.loads(schedule)).times()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    print("listening", flush=True)
    _Driver(times, listener).run()


if __name__ == "__main__":
    _main(*sys.argv[1:])
