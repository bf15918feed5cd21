"""Jobs of many shapes that fail while they take a snapshot, and go on from records in channels
under another parallelism, up and down (P41): nothing is lost, doubled or out of order."""

from __future__ import annotations

from pathlib import Path

import pytest

import streamcp as sc
from tests.recovery.shapes import SHAPES, check
from tests.recovery.topologies import World

WIDE = [(1, 2), (2, 3), (3, 7), (4, 8), (8, 4), (7, 3), (3, 2), (2, 1), (7, 7)]
UP_AND_DOWN = [(2, 3), (3, 1)]


def _rescale(world: World, shape: str, before: int, after: int) -> None:
    world.expect("snapshot", "map")
    with pytest.raises(sc.JobFailed, match=r"checkpoint \d+ failed.*snapshot"):
        world.run(SHAPES[shape], before, restart=sc.Restart.none())
    result = world.run(SHAPES[shape], after)
    assert result is not None
    assert result.outcome == "finished"
    assert world.failed == ["snapshot", "map"]
    assert len(world.replayed) == 2
    assert all(world.replayed)
    check(world, shape)


@pytest.mark.parametrize(("before", "after"), WIDE)
def test_wide_pipeline_goes_on_under_another_parallelism(
    tmp_path: Path, before: int, after: int
) -> None:
    _rescale(World(tmp_path), "wide", before, after)


@pytest.mark.parametrize(("before", "after"), UP_AND_DOWN)
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "wide"])
def test_shape_goes_on_under_another_parallelism(
    tmp_path: Path, shape: str, before: int, after: int
) -> None:
    """Keyed beside forward edges, too (FLINK-38267)."""
    _rescale(World(tmp_path), shape, before, after)


@pytest.mark.parametrize("shape", SHAPES)
def test_shape_is_killed_and_rescaled_again_and_again(tmp_path: Path, shape: str) -> None:
    """Also in the middle of the replay of what the kill before had left."""
    world = World(tmp_path)
    for parallelism in (2, 3, 1, 4):
        world.run_until_killed(SHAPES[shape], parallelism)
    world.end()
    result = world.run(SHAPES[shape], 2)
    assert result is not None
    assert result.outcome == "finished"
    assert len(world.replayed) == 4
    assert all(world.replayed)
    check(world, shape)
