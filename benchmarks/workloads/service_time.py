"""W1: Flink's own benchmark, with a sink of 200 µs, 1 ms and 10 ms per record.

Four sources → exchange → identity → exchange → four slow sinks, no keyed state; records of 1 KiB,
and of 1 byte. How the capacity was chosen: Flink gives a receiving gate two buffers of 32 KiB per
channel and eight more, 512 KiB for four channels, and the sending side as many. That is 256 KiB,
or 256 records of 1 KiB, per channel; a channel of streamcp is the queue of both sides in one. Of
records of 1 byte Flink's buffers would hold more than ten thousand; here the number stays.

Small capacity stands for buffer debloating: aligned checkpoints with as little queued as keeps the
sinks busy. The sinks are I/O-slow: they await.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.harness import Row, Run, Suite
from benchmarks.workloads import judging
from benchmarks.workloads.taking import (
    ADAPTIVE,
    ALIGNED,
    PREDICTING,
    SMALL,
    UNALIGNED,
    Entry,
    Stay,
    Visit,
    in_processes,
    take_of_chain,
)
from benchmarks.workloads.topology import Chain

SMALL_CAPACITY = 10
AS_MANY_TIMES = 100.0  # an aligned checkpoint takes at least so many times an unaligned one


@dataclass(frozen=True, slots=True)
class Sizes:
    """Per process: checkpoints of each kind, aligned ones and those with small capacity by the
    seconds per record; `aligned_bytes` are those with records of 1 byte."""

    services: tuple[float, ...]
    capacity: int
    processes: int
    unaligned: int
    adaptive: int
    aligned: Mapping[float, int]
    aligned_bytes: Mapping[float, int]
    small: Mapping[float, int]


FULL = Sizes(
    services=(0.0002, 0.001, 0.01),
    capacity=256,
    processes=3,
    unaligned=10,
    adaptive=6,
    aligned={0.0002: 4, 0.001: 2, 0.01: 1},
    aligned_bytes={0.0002: 2, 0.001: 1, 0.01: 0},
    small={0.0002: 6, 0.001: 6, 0.01: 2},
)
QUICK = Sizes(
    services=(0.001,),
    capacity=32,
    processes=1,
    unaligned=6,
    adaptive=2,
    aligned={0.001: 2},
    aligned_bytes={0.001: 1},
    small={0.001: 2},
)


async def kibibyte(run: Run[Sizes]) -> Sequence[Row]:
    """How long does a checkpoint take, mode by mode, when sinks take 200 µs, 1 ms or 10 ms per
    record of 1 KiB?"""
    entries: list[Entry] = []
    rows: list[Row] = []
    for service in run.sizes.services:
        setting = _setting(service)
        entries += await in_processes(
            run, take_of_chain, _stays(run.sizes, service, setting), run.sizes.processes
        )
        rows += _rows(entries, setting, service)
    run.keep("checkpoints", entries)
    return [*rows, judging.law_row(entries), *judging.sanity_rows(entries)]


def _setting(service: float) -> str:
    return f"{1000 * service:g} ms per record"


def _stays(sizes: Sizes, service: float, setting: str) -> list[Stay]:
    full = asdict(Chain(service, sizes.capacity, payload=1024))
    small = asdict(Chain(service, SMALL_CAPACITY, payload=1024))
    visits = [
        Visit(UNALIGNED, sizes.unaligned),
        Visit(ADAPTIVE, sizes.adaptive),
        Visit(ALIGNED, sizes.aligned[service]),
    ]
    return [
        Stay(setting, full, visits),
        Stay(setting, full, [Visit(PREDICTING, sizes.adaptive)], predict=True),
        Stay(setting, small, [Visit(SMALL, sizes.small[service])]),
    ]


def _rows(entries: Sequence[Entry], setting: str, service: float) -> list[Row]:
    overtaking = 3 * service
    slowest = service >= 0.01
    return [
        *judging.unaligned_rows(entries, setting, overtaking=overtaking),
        *judging.aligned_rows(entries, setting, queued=True),
        *judging.small_rows(entries, setting),
        *judging.adaptive_rows(entries, setting),
        *judging.adaptive_rows(entries, setting, PREDICTING),
        *judging.times_faster(entries, setting, least=AS_MANY_TIMES),
        *judging.times_faster(
            entries, setting, of=judging.durable, least=AS_MANY_TIMES if slowest else None
        ),
    ]


async def byte(run: Run[Sizes]) -> Sequence[Row]:
    """Does it matter that records have 1 byte instead?"""
    stays = [_bytes_stay(run.sizes, service) for service in run.sizes.services]
    entries = await in_processes(run, take_of_chain, stays, run.sizes.processes)
    run.keep("checkpoints", entries)
    rows: list[Row] = []
    for stay in stays:
        overtaking = 3 * stay.topology["service"]
        rows += judging.unaligned_rows(entries, stay.setting, overtaking=overtaking)
        rows += judging.aligned_rows(entries, stay.setting, queued=True)
        rows += judging.times_faster(entries, stay.setting, least=AS_MANY_TIMES)
    return [*rows, judging.law_row(entries), *judging.sanity_rows(entries)]


def _bytes_stay(sizes: Sizes, service: float) -> Stay:
    visits = [
        Visit(UNALIGNED, sizes.unaligned),
        Visit(ALIGNED, sizes.aligned_bytes[service]),
    ]
    topology = asdict(Chain(service, sizes.capacity, payload=1))
    return Stay(f"{_setting(service)} of 1 byte", topology, visits)


SUITE = Suite("service_time", {"kibibyte": kibibyte, "byte": byte}, FULL, QUICK)
