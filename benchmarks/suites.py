"""Every suite, in the order in which all of them run."""

from typing import Any

from benchmarks import backpressure, incremental, joins, journal, micro, timers, windows
from benchmarks.checkmate import measuring as checkmate
from benchmarks.endurance import suite as endurance
from benchmarks.harness import Suite
from benchmarks.nexmark import measuring as nexmark
from benchmarks.peers import checkpoints as peers_checkpoints
from benchmarks.peers import rates as peers
from benchmarks.workloads import failure, latency, load, transient

_MODULES = (
    micro,
    backpressure,
    endurance,
    incremental,
    journal,
    windows,
    joins,
    timers,
    nexmark,
    latency,
    load,
    transient,
    failure,
    checkmate,
    peers,
    peers_checkpoints,
)

SUITES: tuple[Suite[Any], ...] = tuple(module.SUITE for module in _MODULES)
