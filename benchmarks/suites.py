"""Every suite, in the order in which all of them run."""

from typing import Any

from benchmarks import durability, incremental, joins, journal, outstanding, timers, windows
from benchmarks.checkmate import measuring as checkmate
from benchmarks.endurance import suite as endurance
from benchmarks.harness import Suite
from benchmarks.micro import suite as micro
from benchmarks.nexmark import measuring as nexmark
from benchmarks.peers import checkpoints as peers_checkpoints
from benchmarks.peers import rates as peers
from benchmarks.scale import freezing, keys, memory, parallelism, restore, wide_exchange
from benchmarks.workloads import (
    capacity,
    depth,
    failure,
    latency,
    load,
    long_records,
    overhead,
    position,
    service_time,
    skew,
    state_size,
    timeout,
    transient,
    unequal_inputs,
)

_MODULES = (
    micro,
    windows,
    timers,
    joins,
    journal,
    incremental,
    service_time,
    capacity,
    depth,
    position,
    skew,
    unequal_inputs,
    state_size,
    long_records,
    timeout,
    overhead,
    outstanding,
    latency,
    load,
    transient,
    failure,
    checkmate,
    nexmark,
    peers,
    peers_checkpoints,
    endurance,
    parallelism,
    keys,
    wide_exchange,
    freezing,
    memory,
    restore,
    durability,
)

SUITES: tuple[Suite[Any], ...] = tuple(module.SUITE for module in _MODULES)
