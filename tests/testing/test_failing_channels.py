from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.connectors.collect import Collect
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.testing.failing import failing_channels
from streamcp.testing.running import run_job


def _run(directory: Path, channels: Any) -> tuple[JobResult, list[int], list[str]]:
    """Run a job with two channels in a row; its output, and how its attempts failed."""
    out: Collect[int] = sc.collect()
    causes: list[str] = []
    job = sc.Job(
        "x",
        checkpoints=sc.Checkpoints(to=directory),
        restart=sc.Restart.fixed_delay(attempts=3, delay="1s"),
    )
    numbers = job.source(sc.items(range(20)), name="numbers").rebalance()
    numbers.map(lambda n: n + 1, name="add").sink(out, name="out")

    async def use(handle: JobHandle) -> None:
        def note(event: Any) -> None:
            if type(event).__name__ == "TaskFailed":
                causes.append(event.error)

        handle.events.subscribe(note)
        await handle.wait_finished()

    result = run_job(job, use=use, channels=channels)
    assert result is not None
    return result, out.records, causes


@pytest.mark.parametrize("call", ["push", "take"])
def test_nth_call_fails_and_the_job_restarts_without_loss(tmp_path: Path, call: Any) -> None:
    result, out, causes = _run(tmp_path, failing_channels({call: {1}}))
    assert result.attempts == 2
    assert len(causes) == 1
    assert f"{call} 1 fails, as the test wants it" in causes[0]
    assert sorted(out) == list(range(1, 21))


def test_calls_are_counted_across_attempts(tmp_path: Path) -> None:
    result, _, causes = _run(tmp_path, failing_channels({"push": {1, 2}}))
    assert result.attempts == 3
    assert ["push 1 fails" in causes[0], "push 2 fails" in causes[1]] == [True, True]


def test_channels_of_other_steps_do_not_fail(tmp_path: Path) -> None:
    result, _, causes = _run(tmp_path, failing_channels({"push": {1}}, between="-> add"))
    assert result.attempts == 2
    assert "-> add" in causes[0]
    result, _, causes = _run(tmp_path / "other", failing_channels({"push": {1}}, between="-> rate"))
    assert (result.attempts, causes) == (1, [])


def test_call_that_a_channel_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="a channel may fail at 'push' and 'take'"):
        failing_channels({"pull": {1}})  # type: ignore[dict-item]
