"""Random jobs, killed, crashed and cancelled at random moments: I1 to I3.

To replay one seed: STREAMCP_SEEDS=17 pytest tests/recovery/test_random_jobs.py; a range is 0-500.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.observability import events
from streamcp.runners.handle import JobHandle
from streamcp.runners.life import JobLife
from tests.recovery.graphs import Calls, JobDrawing
from tests.recovery.world import Copies, Target, copy_directory, json_records, run_job


def seeds_of(default: str) -> list[int]:
    first, _, last = os.environ.get("STREAMCP_SEEDS", default).partition("-")
    return list(range(int(first), int(last or first) + 1))


Output = dict[str, Counter[str]]


class Place:
    """Everything durable of one run: checkpoints, files, targets."""

    def __init__(self, root: Path, target: Target, *, at_least_once: bool = False) -> None:
        self.root = root
        self.target = target
        self._at_least_once = at_least_once

    def drawing(self, seed: int, calls: Calls) -> JobDrawing:
        root = self.root
        drawing = JobDrawing(
            seed,
            calls,
            self.target,
            root / "checkpoints",
            root / "files",
            at_least_once=self._at_least_once,
        )
        drawing.draw()
        return drawing

    def killed_copy(self, root: Path) -> Place:
        copy_directory(self.root, root)
        return Place(root, self.target.copy(), at_least_once=self._at_least_once)

    def output(self, drawing: JobDrawing) -> Output:
        return {name: Counter(map(repr, self._records(name))) for name in drawing.exact}

    def at_least(self, drawing: JobDrawing) -> Output:
        return {
            name: Counter(repr(record) for sink, record in self.target.plain if sink == name)
            for name in drawing.at_least
        }

    def _records(self, name: str) -> list[Any]:
        if name.startswith("files"):
            return json_records(self.root / "files" / name)
        return self.target.records(name)


def _meddle(rnd: random.Random) -> Any:
    """Ask for checkpoints, modes, intervals and stops at random times."""

    async def meddle(handle: JobHandle) -> None:
        await asyncio.sleep(0)
        while True:
            await asyncio.sleep(rnd.choice((0, 0, 0.001, 0.005)))
            match rnd.randrange(6):
                case 0:
                    with contextlib.suppress(sc.SettingsError):  # an at-least-once job
                        handle.set_mode(rnd.choice(("aligned", "unaligned", "adaptive")))
                case 1:
                    handle.set_interval(rnd.choice((None, "1ms", "5ms")))
                case 2:
                    handle.set_alignment_timeout(rnd.choice(("0s", "1ms", "10ms")))
                case 3 | 4:
                    with contextlib.suppress(sc.CheckpointFailed):
                        await handle.checkpoint()
                case 5 if rnd.random() < 0.1:
                    with contextlib.suppress(sc.CheckpointFailed):
                        await handle.stop()
                case _:
                    handle.view()

    return meddle


def run_until_ended(
    place: Place, seed: int, run_seed: int, copies: Path | None, *, rough: bool = False
) -> list[Place]:
    """Run the job of `seed` to its end; return copies of what kills would have left behind.

    Rough: through crashes and cancellations, and killed at random moments. Else: killed right
    after the completion of each checkpoint."""
    rnd = random.Random(run_seed)
    killed: list[Place] = []
    crashes = [rnd.randint(1, 600) for _ in range(rnd.randint(0, 3))] if rough else []
    calls = Calls(crashes)
    cancels = [rnd.randint(1, 400) for _ in range(rnd.randint(0, 2))] if rough else []
    while True:
        drawing = place.drawing(seed, calls)
        cancel_at = cancels.pop() if cancels else None
        kill_at = {rnd.randint(1, 500) for _ in range(2)} if rough else set()
        turns = 0

        def kill() -> None:
            if copies is not None:
                killed.append(place.killed_copy(copies / str(len(killed))))

        def on_event(event: events.Event) -> None:
            if isinstance(event, events.CheckpointCompleted) and not rough:
                kill()

        def on_turn(
            life: JobLife, kill_at: set[int] = kill_at, cancel_at: int | None = cancel_at
        ) -> None:
            nonlocal turns
            turns += 1
            if turns == 1:
                life.log.subscribe(on_event)
            if turns in kill_at:
                kill()
            if turns == cancel_at:
                raise asyncio.CancelledError

        meddle = _meddle(rnd) if rough else None
        result = run_job(drawing.job, seed=rnd.randrange(1 << 30), use=meddle, on_turn=on_turn)
        if result is not None and result.outcome != "stopped":
            return killed


def _compare(place: Place, drawing: JobDrawing, exact: Output, at_least: Output) -> None:
    output = place.output(drawing)
    for name, expected in exact.items():
        assert output[name] == expected, (
            f"{name}: too many {output[name] - expected}, too few {expected - output[name]}"
        )
    for name, records in place.at_least(drawing).items():
        assert not at_least[name] - records, f"{name} lost {at_least[name] - records}"
        assert records.keys() <= at_least[name].keys(), f"{name} has strange records"


def check_seed(seed: int, tmp_path: Path, checkpoints: int = 3) -> None:
    """One random job: run once undisturbed, once roughly; go on from every kill, and from
    `checkpoints` of those that completed undisturbed."""
    quiet = Place(tmp_path / "quiet", Target())
    drawing = quiet.drawing(seed, Calls())
    print(f"seed {seed}: {' '.join(drawing.described)}")
    completed = run_until_ended(quiet, seed, seed, tmp_path / "completed")
    exact, at_least = quiet.output(drawing), quiet.at_least(drawing)
    wrong = [one for records in exact.values() for one in records if "#" in one]
    assert not wrong, f"already undisturbed: {wrong[:5]}"

    rough = Place(tmp_path / "rough", Target())
    killed = run_until_ended(rough, seed, seed + 1, tmp_path / "killed", rough=True)
    _compare(rough, drawing, exact, at_least)
    chosen = random.Random(seed).sample(completed, min(len(completed), checkpoints))
    for number, place in enumerate(killed + chosen):
        run_until_ended(place, seed, seed + 2 + number, None)
        _compare(place, drawing, exact, at_least)


@pytest.mark.parametrize("seed", seeds_of("0-24"))
def test_random_job_through_kills_crashes_and_cancellations_has_the_output_of_an_undisturbed_run(
    seed: int, tmp_path: Path
) -> None:
    check_seed(seed, tmp_path)


def check_take_over(seed: int, tmp_path: Path) -> None:
    """One random job, of which a second copy takes over at a random moment."""
    rnd = random.Random(seed)
    quiet, shared = Place(tmp_path / "quiet", Target()), Place(tmp_path / "shared", Target())
    drawing = quiet.drawing(seed, Calls())
    print(f"seed {seed}: {' '.join(drawing.described)}")
    run_until_ended(quiet, seed, seed, None)
    copies = Copies(seed)

    async def main() -> None:
        _, old = copies.start(shared.drawing(seed, Calls()).job)
        await asyncio.sleep(rnd.random() * 0.1)
        _, new = copies.start(shared.drawing(seed, Calls()).job, take_over=True)
        await new
        await asyncio.wait([old])
        if old.exception() is None:
            assert old.result().outcome == "finished"
        else:
            assert isinstance(old.exception(), sc.Fenced)

    copies.run(main)
    _compare(shared, drawing, quiet.output(drawing), quiet.at_least(drawing))


@pytest.mark.parametrize("seed", seeds_of("100-109"))
def test_random_job_that_is_taken_over_has_the_output_of_an_undisturbed_run(
    seed: int, tmp_path: Path
) -> None:
    check_take_over(seed, tmp_path)
