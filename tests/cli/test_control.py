"""A running job is asked on the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runners.test_control import running

Cli = Callable[..., Any]


@pytest.mark.asyncio
async def test_running_job_is_asked_for_everything(cli: Cli, folder: Path) -> None:
    checkpoints = folder / "cp"

    async def ran(*arguments: str) -> str:
        done = await asyncio.to_thread(cli, *arguments)
        assert (done.code, done.err) == (0, "")
        return str(done.out)

    async with running(checkpoints) as handle:
        assert "checkpoint 1 complete" in await ran("checkpoint", "cp")
        assert json.loads(await ran("checkpoint", "cp/words", "--json"))["checkpoint_id"] == 2
        assert await ran("mode", "cp", "aligned") == "mode aligned from the next checkpoint on\n"
        saved = await ran("savepoint", "cp", "saved", "--mode", "unaligned")
        assert saved == f"{folder / 'saved' / 'words-3'}\n", "relative to who asks"
        stopped = await ran("stop", "cp", "--savepoint", "saved")
        assert stopped.startswith("job words stopped: checkpoint 4, savepoint ")
        assert (await handle.wait_finished()).outcome == "stopped"


@pytest.mark.asyncio
async def test_drained_job_has_finished(cli: Cli, folder: Path) -> None:
    async with running(folder / "cp") as handle:
        both = await asyncio.to_thread(cli, "stop", "cp", "--drain", "--savepoint", "saved")
        assert both.code == 2
        assert "leave one of the two out" in both.err
        done = await asyncio.to_thread(cli, "stop", "cp", "--drain")
        assert (done.code, done.out) == (0, "job words finished: checkpoint 1\n")
        assert (await handle.wait_finished()).outcome == "finished"


@pytest.mark.asyncio
async def test_refusals_have_their_exit_codes(cli: Cli, folder: Path) -> None:
    async with running(folder / "cp"):
        wrong = await asyncio.to_thread(cli, "mode", "cp", "sideways")
        assert wrong.code == 2
        assert "choose one of" in wrong.err
    ended = cli("stop", "cp")
    assert ended.code == 1
    assert "no job runs in cp/words" in ended.err
    assert cli("checkpoint", "nowhere").code == 2


@pytest.mark.parametrize(
    "arguments",
    [("mode", "cp", "sideways"), ("savepoint", "cp", "saved", "--mode", "sideways"),
     ("stop", "cp", "--mode", "sideways")],
)  # fmt: skip
def test_unknown_mode_is_wrong_use_before_any_job_is_asked(
    cli: Cli, folder: Path, arguments: tuple[str, ...]
) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert "there is no mode 'sideways': choose one of aligned, unaligned" in ran.err
