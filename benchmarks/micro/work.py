"""The functions: the same objects are called by the job and by the bare loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import streamcp as sc

KEYS = 1000


CONCURRENCY = 100


SLEEP = 0.005


def scale(value: int) -> int:
    return value * 3 + 1


def is_kept(value: int) -> bool:
    return value % 4 != 0


def shift(value: int) -> int:
    return value - 7


def key_of(value: int) -> int:
    return value % KEYS


@dataclass
class Totals:
    """The state of a keyed step."""

    count: int = 0
    total: int = 0


def update(value: int, state: Totals, context: sc.KeyContext[int]) -> tuple[int]:
    state.count += 1
    state.total += value
    return (state.total,)


async def pause(value: int) -> int:
    await asyncio.sleep(SLEEP)
    return value


async def scale_at_once(value: int) -> int:
    return value * 3 + 1
