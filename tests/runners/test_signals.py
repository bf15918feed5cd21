from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import CheckpointFailed, JobFailed
from streamcp.storage.local import LocalStorage


def _raise_signals(count: int) -> None:
    for _ in range(count):
        signal.raise_signal(signal.SIGINT)


def _job(folder: Path | None, signals: int, *, wait: Any = None, **options: Any) -> sc.Job:
    """Read one record, get signals, then wait for ever."""

    @sc.source
    async def one(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        yield position, position + 1
        _raise_signals(signals)
        await (wait() if wait is not None else asyncio.Event().wait())

    checkpoints = None if folder is None else sc.Checkpoints(to=folder, **options)
    job = sc.Job("signalled", checkpoints=checkpoints)
    job.source(one(), name="one").sink(sc.discard(), name="out")
    return job


def test_first_signal_stops_with_a_checkpoint(tmp_path: Path) -> None:
    result = _job(tmp_path, 1).run()
    assert (result.outcome, result.last_checkpoint) == ("stopped", 1)


def test_first_signal_without_checkpoints_stops_with_nothing_to_continue_from() -> None:
    result = _job(None, 1).run()
    assert (result.outcome, result.last_checkpoint) == ("stopped", None)


def test_second_signal_ends_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _job(tmp_path, 2).run()


def test_third_signal_interrupts_what_blocks() -> None:
    def block(x: int) -> int:
        _raise_signals(3)
        raise AssertionError("not reached")

    job = sc.Job("blocked")
    job.source(sc.items([1])).map(block).sink(sc.discard())
    with pytest.raises(KeyboardInterrupt):
        job.run()


def test_handlers_are_put_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    _job(tmp_path, 1).run()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_failing_checkpoint_of_a_stop_ends_the_run_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its data is written by a thread, and meanwhile the time is over.
    monkeypatch.setattr(LocalStorage, "defer_data", lambda *arguments: None)
    with pytest.raises(CheckpointFailed, match=r"timeout .*a later run begins anew"):
        _job(tmp_path, 1, timeout="0s").run()


def test_signal_while_the_job_starts_is_heard(tmp_path: Path) -> None:
    class Service:
        async def __aenter__(self) -> int:
            _raise_signals(1)
            await asyncio.sleep(0)
            return 1

        async def __aexit__(self, *error: object) -> None:
            pass

    async def use(x: int, service: int) -> int:
        return x + service

    job = sc.Job("starting", checkpoints=sc.Checkpoints(to=tmp_path))
    endless = sc.generator(lambda n: n)
    stream = job.source(endless, name="in").map(use, name="use", uses=Service)
    stream.sink(sc.discard(), name="out")
    result = job.run()
    assert (result.outcome, result.last_checkpoint) == ("stopped", 1)


def test_signal_while_the_job_fails_stops_it_instead_of_restarting(tmp_path: Path) -> None:
    async def fail() -> None:
        raise ValueError("boom")

    endless = sc.Restart.fixed_delay(attempts=None, delay="1h")
    result = _job(tmp_path, 1, wait=fail).run(restart=endless)
    assert result.outcome == "stopped"


def test_job_that_fails_before_it_runs_ends_although_asked_to_stop(tmp_path: Path) -> None:
    def open_nothing() -> Any:
        _raise_signals(1)
        raise ValueError("no service")

    async def use(x: int, service: int) -> int:
        return x

    job = sc.Job("unable")
    job.source(sc.items([1])).map(use, uses=open_nothing).sink(sc.discard())
    with pytest.raises(JobFailed, match="no service"):
        job.run()


def test_in_another_thread_signals_are_left_alone(tmp_path: Path) -> None:
    results = []
    job = sc.Job("threaded")
    job.source(sc.items([1])).sink(sc.discard())
    thread = threading.Thread(target=lambda: results.append(job.run()))
    thread.start()
    thread.join()
    assert results[0].outcome == "finished"
