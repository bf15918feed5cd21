"""Reports about ends: of the input, and those that the user asks for."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from tests.cases.small_jobs import killed_after
from tests.recovery.world import Target, run_job, transactional

# ---- the end of the input


def test_source_whose_connection_breaks_at_its_end_is_opened_again_and_the_job_ends(
    tmp_path: Path,
) -> None:
    """jet#2532 (case 41), within one process: the end did not come through, so the source is asked
    again, from behind its last record."""
    target, opened = Target(), list[int]()

    @sc.source
    async def remote(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        opened.append(position)
        for i in range(position, 20):
            yield i, i + 1
        await asyncio.sleep(5)
        if len(opened) < 3:
            raise ConnectionError("reset by peer")

    job = sc.Job(
        "remote",
        checkpoints=sc.Checkpoints(to=tmp_path, every="1s"),
        restart=sc.Restart.fixed_delay(attempts=2, delay="1s"),
    )
    stream = job.source(remote(), name="remote").map(lambda n: [n])
    stream.rebalance().sink(transactional(target), name="out")
    result = run_job(job)
    assert result is not None
    assert (result.outcome, opened) == ("finished", [0, 20, 20])
    assert Counter(row[0] for row in target.records("out")) == Counter(range(20))


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_end_of_input_that_was_queued_when_the_job_was_killed_comes_again(
    tmp_path: Path, mode: Any
) -> None:
    """jet#2532 (case 41): the source has ended, its end stands in a channel behind records."""
    written: list[int] = []

    async def slowly(number: int) -> int:
        await asyncio.sleep(1)
        return number

    async def write(records: Any) -> None:
        written.extend(records)

    def job() -> sc.Job:
        made = sc.Job("queued", checkpoints=sc.Checkpoints(to=tmp_path, mode=mode))
        stream = made.source(sc.items(range(20)), name="numbers").rebalance()
        called = stream.map(slowly, name="slowly", concurrency=1, parallelism=2)
        called.rebalance().sink(write, name="out")
        return made

    assert run_job(job(), use=killed_after(3)) is None
    assert len(written) < 20
    result = run_job(job())
    assert result is not None
    assert (result.outcome, result.restored_from) == ("finished", 1)
    assert set(written) == set(range(20))


# ---- signals


@dataclass
class Place:
    """Where in a job's life the signals arrive."""

    moment: str
    number: int
    times: int = 1
    sent: bool = False
    calls: list[int] = field(default_factory=list)

    def reached(self, moment: str) -> None:
        if moment == self.moment and not self.sent:
            self.sent = True
            for _ in range(self.times):
                signal.raise_signal(self.number)


class Mark:
    """Written by a function, so that a checkpoint is seen from inside."""


def _job(directory: Path, place: Place, *, hold: bool, every: str | None = None) -> sc.Job:
    @sc.source
    async def endless(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for i in range(position, 10):
            yield i, i + 1
        await asyncio.Event().wait()

    @asynccontextmanager
    async def service() -> AsyncIterator[None]:
        place.reached("restore")
        yield None

    async def call(number: int, _: None) -> int:
        place.calls.append(number)
        if len(place.calls) == 4:
            place.reached("await")
        if hold:
            await asyncio.Event().wait()
        return number

    def encode(mark: Mark) -> int:
        place.reached("checkpoint")
        return 0

    @dataclass
    class State:
        mark: Mark = field(default_factory=Mark)

    def note(number: int, state: State, ctx: sc.KeyContext[int]) -> list[int]:
        state.mark = Mark()
        return [number]

    job = sc.Job(
        "signalled",
        checkpoints=sc.Checkpoints(to=directory, every=every),
        types=[sc.codec(Mark, encode, lambda _: Mark())],
    )
    noted = job.source(endless(), name="endless").key_by(lambda n: 0)
    called = noted.process(note, state=State, name="note").map(
        call, uses=service, name="call", concurrency=4
    )
    called.sink(sc.discard(), name="out")
    return job


@pytest.fixture(autouse=True)
def _quiet(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No run says that its loop is closed, or that something was never awaited."""
    yield
    said = "".join(capfd.readouterr()) + caplog.text
    assert "loop is closed" not in said
    assert "never awaited" not in said
    assert "never retrieved" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["await", "restore", "checkpoint"])
def test_first_signal_takes_a_last_checkpoint_and_stops(
    tmp_path: Path, moment: str, number: int
) -> None:
    """csp 3f98441, faust#501, #105, rh-faust#684 (case 51): whatever the job is doing, its calls
    are in the last checkpoint, and are made again by the next run."""
    every = "20ms" if moment == "checkpoint" else None
    first = Place("await", signal.SIGINT) if moment == "restore" else Place(moment, number)
    result = _job(tmp_path, first, hold=True, every=every).run()
    assert (result.outcome, first.sent) == ("stopped", True)
    second = Place(moment if moment == "restore" else "await", number)
    again = _job(tmp_path, second, hold=True).run()
    assert (again.outcome, again.restored_from) == ("stopped", result.last_checkpoint)
    assert second.sent
    third = Place("await", number)
    _job(tmp_path, third, hold=True).run()
    assert third.calls[:4] == [0, 1, 2, 3]


@pytest.mark.parametrize("moment", ["await", "restore", "checkpoint"])
def test_second_signal_ends_at_once_and_the_next_run_goes_on(tmp_path: Path, moment: str) -> None:
    """csp 3f98441, rh-faust#684 (case 51); the command line makes exit code 130 of it."""
    first = Place("await", signal.SIGINT)
    result = _job(tmp_path, first, hold=True).run()
    every = "20ms" if moment == "checkpoint" else None
    second = Place(moment, signal.SIGINT, times=2)
    with pytest.raises(KeyboardInterrupt):
        _job(tmp_path, second, hold=True, every=every).run()
    assert second.sent
    third = Place("await", signal.SIGTERM)
    again = _job(tmp_path, third, hold=True).run()
    assert again.outcome == "stopped"
    assert again.restored_from is not None
    assert result.last_checkpoint is not None
    assert again.restored_from >= result.last_checkpoint
    assert third.calls[:4] == [0, 1, 2, 3]
