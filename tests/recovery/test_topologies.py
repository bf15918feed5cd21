"""Jobs of many shapes that fail in every phase of their lives, and are killed: nothing is lost,
doubled or out of order (I1 to I3), and each restart replays records of channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamcp.runners.handle import JobHandle
from tests.recovery.shapes import SHAPES, check, dealt
from tests.recovery.topologies import Failure, World

MODES = ("unaligned", "adaptive")
# Three of them fail a restart: an attempt that never runs.
SCRIPT: tuple[Failure, ...] = ("map", "snapshot", "map", "open", "map", "close", "map", "restore")
RESTARTS = 7


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES)
def test_shape_that_fails_everywhere_has_each_record_once_and_in_order(
    tmp_path: Path, shape: str, mode: Any
) -> None:
    world = World(tmp_path)
    world.expect(*SCRIPT)
    result = world.run(SHAPES[shape], 2, mode)
    assert result is not None
    assert (result.outcome, result.attempts) == ("finished", RESTARTS + 1)
    assert tuple(world.failed) == SCRIPT
    assert len(world.replayed) == RESTARTS - 2, "two attempts never ran"
    assert all(world.replayed)
    assert world.completed >= len(SCRIPT)
    check(world, shape)


@pytest.mark.parametrize("parallelism", [1, 5])
@pytest.mark.parametrize("shape", ["pipeline", "union", "cogroup"])
def test_shape_of_another_width_that_fails_everywhere_has_each_record_once(
    tmp_path: Path, shape: str, parallelism: int
) -> None:
    world = World(tmp_path)
    world.expect(*SCRIPT)
    assert world.run(SHAPES[shape], parallelism) is not None
    assert tuple(world.failed) == SCRIPT
    assert all(world.replayed)
    check(world, shape)


@pytest.mark.parametrize("mode", MODES)
def test_records_of_one_channel_come_in_their_order_through_every_restart(
    tmp_path: Path, mode: Any
) -> None:
    """One channel leads from each split to each subtask of the sink (I3)."""
    world = World(tmp_path)
    world.expect(*SCRIPT)
    world.run(dealt, 3, mode)
    assert all(world.replayed)
    world.expect_order()


@pytest.mark.parametrize("shape", SHAPES)
def test_shape_that_is_killed_again_and_again_has_each_record_once(
    tmp_path: Path, shape: str
) -> None:
    world = World(tmp_path)
    for _ in range(2):
        world.run_until_killed(SHAPES[shape], 2)
    world.end()
    result = world.run(SHAPES[shape], 2)
    assert result is not None
    assert result.outcome == "finished"
    assert len(world.replayed) == 2
    assert all(world.replayed)
    check(world, shape)


def test_service_that_fails_to_close_at_the_end_lets_the_next_attempt_finish(
    tmp_path: Path,
) -> None:
    """The final checkpoint is complete: nothing is read or written again."""
    world = World(tmp_path)
    world.expect("close")

    async def end(handle: JobHandle) -> None:
        await world.until_ripe(handle)
        world.end()

    result = world.run(dealt, 2, use=end)
    assert result is not None
    assert (result.outcome, result.attempts, world.failed) == ("finished", 2, ["close"])
    check(world, "dealt")
