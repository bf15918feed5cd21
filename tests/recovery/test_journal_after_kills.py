"""Answered calls of journaled steps are not made again, however often the job is killed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from tests.recovery.world import run_job

# Some are equal.
QUESTIONS = [1, 2, 2, 3, 1, 2, 4, 5, 5, 5, 6, 1, 7, 8, 2, 9, 9, 3, 1, 1]


class Service:
    """Answers slowly, each time differently; knows what it has answered."""

    def __init__(self, rnd: random.Random) -> None:
        self.answered: list[int] = []
        self._rnd = rnd

    async def ask(self, question: int) -> str:
        await asyncio.sleep(self._rnd.random())
        self.answered.append(question)
        return f"{question}: {len(self.answered)}"


@dataclass
class Talk:
    """What was said to one user."""

    said: list[str] = field(default_factory=list)


def job(directory: Path, kind: str, service: Service, out: list[Any], **options: Any) -> sc.Job:
    async def ask(question: int) -> str:
        return await service.ask(question)

    async def several(question: int) -> list[str]:
        return [await service.ask(question), "and so on"]

    async def keep(question: int) -> bool:
        return bool(await service.ask(question))

    async def say(question: int, talk: Talk, ctx: sc.KeyContext[int]) -> list[str]:
        talk.said.append(await service.ask(question))
        ctx.set_timer(after="1h")
        return [f"{len(talk.said)} {talk.said[-1]}"]

    def hang_up(timestamp: int, talk: Talk, ctx: sc.KeyContext[int]) -> list[str]:
        ctx.clear_state()
        return [f"{ctx.key} said {len(talk.said)}"]

    async def write(records: Any) -> None:
        out.extend(records)

    made = sc.Job(
        "questions",
        checkpoints=sc.Checkpoints(to=directory, every="500ms", mode="unaligned"),
        channel_capacity=5,
    )
    options = {"concurrency": 4, "journal": True} | options
    numbers = made.source(sc.items(QUESTIONS), name="questions").rebalance()
    stream: Any
    match kind:
        case "keyed":
            keyed = numbers.key_by(lambda question: question % 3)
            stream = keyed.process(say, state=Talk, on_timer=hang_up, name="ask", **options)
        case "flat_map":
            stream = numbers.flat_map(several, name="ask", **options)
        case "filter":
            stream = numbers.filter(keep, name="ask", **options)
        case _:
            ordered = kind == "ordered"
            stream = numbers.map(ask, name="ask", ordered=ordered, **options)
    stream.rebalance().sink(write, name="out")
    return made


def killed_after(seconds: float) -> Any:
    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(seconds)
        raise asyncio.CancelledError

    return until_killed


def kill_and_run(
    directory: Path, kind: str, service: Service, rnd: random.Random, **options: Any
) -> list[Any]:
    """Run under other parallelisms, killed a few times, then to the end; return what came out."""
    out: list[Any] = []
    for _ in range(5):
        made = job(directory, kind, service, out, parallelism=rnd.choice([1, 2, 3]), **options)
        use = killed_after(rnd.choice([0.2, 0.3, 0.6, 0.9]))
        run_job(made, seed=rnd.randint(1, 99), use=use)
    run_job(job(directory, kind, service, out, **options))
    return out


@pytest.mark.parametrize("kind", ["ordered", "unordered", "keyed", "flat_map", "filter"])
@pytest.mark.parametrize("seed", range(4))
def test_every_question_is_answered_once(tmp_path: Path, kind: str, seed: int) -> None:
    rnd = random.Random(f"{kind} {seed}")
    service = Service(rnd)
    kill_and_run(tmp_path, kind, service, rnd)
    assert Counter(service.answered) == Counter(QUESTIONS)


@pytest.mark.parametrize("seed", range(4))
def test_answer_that_was_seen_downstream_stays_what_it_was(tmp_path: Path, seed: int) -> None:
    rnd = random.Random(f"seen {seed}")
    service = Service(rnd)
    seen = kill_and_run(tmp_path, "unordered", service, rnd)
    assert len(seen) > len(QUESTIONS), "nothing was written twice"
    assert len(set(seen)) == len(QUESTIONS)


@pytest.mark.parametrize("seed", range(4))
def test_without_journal_questions_are_asked_again(tmp_path: Path, seed: int) -> None:
    rnd = random.Random(f"seen {seed}")
    service = Service(rnd)
    kill_and_run(tmp_path, "unordered", service, rnd, journal=False)
    assert len(service.answered) > len(QUESTIONS)


@pytest.mark.parametrize("kind", ["ordered", "keyed"])
def test_fresh_start_asks_again(tmp_path: Path, kind: str) -> None:
    service = Service(random.Random(1))
    run_job(job(tmp_path, kind, service, []), use=killed_after(0.9))
    before = len(service.answered)
    assert before > 0
    run_job(job(tmp_path, kind, service, []), fresh=True)
    assert len(service.answered) == before + len(QUESTIONS)


def test_finished_job_leaves_no_journal(tmp_path: Path) -> None:
    service = Service(random.Random(1))
    run_job(job(tmp_path, "ordered", service, []), use=killed_after(0.9))
    directory = tmp_path / "questions" / "journal"
    assert list(directory.iterdir())
    run_job(job(tmp_path, "ordered", service, []))
    assert not list(directory.iterdir())


@pytest.mark.parametrize("kind", ["ordered", "keyed"])
def test_stopped_job_finds_the_answers_that_came_behind_its_last_checkpoint(
    tmp_path: Path, kind: str
) -> None:
    service = Service(random.Random(3))

    async def stop(handle: JobHandle) -> None:
        await asyncio.sleep(1.2)
        await handle.stop()

    run_job(job(tmp_path, kind, service, []), use=stop)
    run_job(job(tmp_path, kind, service, []))
    assert Counter(service.answered) == Counter(QUESTIONS)
