"""The benchmarks of scale run, in forms so short that their times say nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchmarks import durability
from benchmarks.harness import Row, Run
from benchmarks.scale import freezing, keys, memory, parallelism, restore, wide_exchange
from streamcp.runners.local import run_blocking

SHORT: list[tuple[Any, Any, int]] = [
    (parallelism, parallelism.Sizes(2048, 1, (1, 2)), 4),
    (keys, keys.Sizes(1000, 1, (10, 100)), 4),
    (wide_exchange, wide_exchange.Sizes(3, 8, 2, 0.005), 3),
    (freezing, freezing.Sizes(2000, 1, 1, 0.1), 7),
    (memory, memory.Sizes(500, 2, 1), 4),
    (restore, restore.Sizes(500, 300, 1), 2),
    (durability, durability.Sizes(4, 2, 0.005), 4),
]


@pytest.mark.parametrize(("module", "sizes", "count"), SHORT)
def test_each_benchmark_measures(module: Any, sizes: Any, count: int) -> None:
    [benchmark] = module.SUITE.benchmarks.values()

    rows: list[Row] = list(run_blocking(lambda: benchmark(Run(sizes, seed=1))))

    assert len(rows) == count
    assert all(math.isfinite(row.value) for row in rows)
    assert all(row.interval is not None for row in rows)
