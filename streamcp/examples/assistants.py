"""Assistants that talk with many users at once, by a language model that takes seconds.

    streamcp run streamcp.examples.assistants
    streamcp run streamcp.examples.assistants --users 1000 --latency 5s --concurrency 500
    python -m streamcp.examples.assistants

Messages of many users → per user: the conversation so far, and a call of the model with it → JSON
lines, exactly once; messages that the model refuses → dead letters. The messages of one user are
answered in their order, each with all that was said before; users do not wait for each other.

Every answer is paid for, and no two are alike. It is journaled: killed at any moment and started
again, the job makes no call again whose answer it had, and a conversation goes on as it was.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import streamcp as sc
from streamcp.examples.language_model import (
    ModelBusy,
    ModelClient,
    model_service,
)


@dataclass(frozen=True, slots=True)
class Message:
    """What a user says; `number` ascends in all that users say."""

    user: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What the assistant answers: the `turn`-th time that it answers this user."""

    user: str
    number: int
    turn: int
    text: str


@dataclass
class Conversation:
    """What was said to and by one user, in turn."""

    said: list[str] = field(default_factory=list)


def message(number: int, user: int) -> Message:
    """Make up what a user says; one in fifty asks for what the model refuses."""
    topic = "your password" if number % 50 == 49 else f"topic {number}"
    return Message(f"user-{user}", number, f"tell me about {topic}")


async def answer(
    message: Message,
    conversation: Conversation,
    context: sc.KeyContext[str],
    model: ModelClient,
) -> list[Reply]:
    """Ask the model with the whole conversation. Called again, it finds it as it was."""
    said = [*conversation.said, message.text]
    text = await model.complete(context.call_id, said)
    conversation.said = [*said, text]
    return [Reply(message.user, message.number, len(conversation.said) // 2, text)]


@sc.job
def assistants(
    users: int = 400,
    messages: int = 2000,
    rate: float = 200.0,
    latency: str = "2s",
    patience: str = "4s",
    busy: float = 0.1,
    concurrency: int = 400,
    out: Path = Path("assistants-out"),
) -> sc.Job:
    """Conversations of many users with a slow language model.

    users: so many talk with the assistants
    messages: so many are said in all
    rate: messages per second
    latency: of the model, per answer, about
    patience: so long an answer is waited for; some never come
    busy: the part of the calls that the model refuses for now
    concurrency: so many calls are under way at once
    out: the directory for replies, dead letters and the model's own log of calls
    """
    out.mkdir(parents=True, exist_ok=True)
    job = sc.Job("assistants", checkpoints=sc.Checkpoints(every="1s", to="./checkpoints"))
    incoming = sc.generator(message, keys=users, count=messages, rate=rate)
    replies = (
        job.source(incoming, name="messages")
        .key_by(lambda message: message.user)
        .process(
            answer,
            name="answer",
            state=Conversation,
            uses=partial(model_service, latency, busy, out / "calls.jsonl", concurrency),
            concurrency=concurrency,
            timeout=patience,
            retry=sc.Retry(attempts=8, backoff="100ms", on=(ModelBusy, TimeoutError)),
            rate=sc.Rate(max(1, round(2 * rate)), per="1s"),
            on_error="divert",
            journal=True,
        )
    )
    replies.sink(sc.files.json_lines(out / "replies"), name="replies")
    replies.errors.map(lambda failure: failure.record).sink(
        sc.files.json_lines(out / "dead-letters"), name="dead-letters"
    )
    return job


def show(event: Any) -> None:
    """Print what a checkpoint took, and how many calls were waiting meanwhile."""
    told = event.as_dict()
    if told["event"] != "CheckpointCompleted":
        return
    figures = told["statistics"]
    print(
        f"checkpoint {told['checkpoint_id']}: the barrier passed in "
        f"{1000 * figures['barrier_delay']:.1f} ms, durable after "
        f"{1000 * figures['durable_delay']:.0f} ms, with "
        f"{figures['in_flight_records']} messages waiting for their answers",
        flush=True,
    )


async def main() -> None:
    """Run the job, and print what its checkpoints take."""
    async with assistants().start() as running:
        running.events.subscribe(show)
        result = await running.wait_finished()
        print(f"{result.outcome} after {result.duration:.1f} s")


if __name__ == "__main__":
    asyncio.run(main())
