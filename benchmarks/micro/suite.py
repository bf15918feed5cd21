"""The questions, and how much is measured for them."""

from __future__ import annotations

from benchmarks.harness import Suite
from benchmarks.micro.calls import calls, coroutine
from benchmarks.micro.exchange import exchange
from benchmarks.micro.process import expiry, process
from benchmarks.micro.sizes import FULL, QUICK
from benchmarks.micro.stateless import stateless

SUITE = Suite(
    "micro",
    {
        "stateless": stateless,
        "exchange": exchange,
        "process": process,
        "expiry": expiry,
        "calls": calls,
        "coroutine": coroutine,
    },
    FULL,
    QUICK,
)
