"""Numbers and events as people read them: one line per event."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.config import Checkpoints
from streamcp.observability import events

_DAY_MS = 86_400_000


def duration(seconds: float | None) -> str:
    """`480 µs`, `12.3 ms`, `1.50 s`, `2 min 05 s`; nothing for None."""
    if seconds is None:
        return ""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.0995:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 100:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def event_time(watermark: int | None, now: int) -> str:
    """How far a watermark is from `now`: `1.50 s behind`, `2 min 05 s ahead`; from a day on
    as the time that it tells, `2013-01-05 12:00:00`. Nothing for None."""
    if watermark is None:
        return ""
    behind = now - watermark
    if abs(behind) < _DAY_MS:
        return f"{duration(abs(behind) / 1000)} {'behind' if behind >= 0 else 'ahead'}"
    try:
        return f"{datetime.fromtimestamp(watermark / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # no year that a calendar has
        return str(watermark)


def size(count: int) -> str:
    """`512 B`, `1.5 kB`, `2.0 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def number(count: float) -> str:
    """`1,234`; shortened from a hundred thousand on: `123 k`, `1.23 M`."""
    if count < 100_000:
        return f"{count:,.0f}"
    if count < 1_000_000:
        return f"{count / 1000:,.0f} k"
    return f"{count / 1e6:,.2f} M"


def counted(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def in_flight(records: int, held: int) -> str:
    """`345 in-flight records (12.0 kB)`."""
    return f"{counted(records, 'in-flight record')} ({size(held)})"


def checkpointing(settings: Checkpoints | None) -> str:
    """Which checkpoints are taken, and where they go."""
    if settings is None:
        return "no checkpoints"
    every = settings.every
    often = "only on request and at the end" if every is None else f"every {every}"
    return f"{settings.mode} checkpoints {often} in {settings.to}"


def mode(checkpoint: CheckpointStatistics) -> str:
    """The mode at the trigger, and when it was escalated."""
    if checkpoint.escalated_after is None:
        return checkpoint.mode
    return f"{checkpoint.mode} → unaligned after {duration(checkpoint.escalated_after)}"


def checkpoint_line(checkpoint: CheckpointStatistics) -> str:
    """A checkpoint that has ended."""
    head = f"checkpoint {checkpoint.checkpoint_id}"
    kind = f"{checkpoint.kind}, {mode(checkpoint)}"
    if checkpoint.outcome == "failed":
        reason = (checkpoint.failure or "").lower().replace("_", " ")
        detail = f": {checkpoint.failure_detail}" if checkpoint.failure_detail else ""
        return f"{head} failed ({kind}): {reason}{detail}"
    return (
        f"{head} complete ({kind}): barrier {duration(checkpoint.barrier_delay)}, durable "
        f"{duration(checkpoint.durable_delay)}, state {size(checkpoint.state_bytes)}, "
        f"{in_flight(checkpoint.in_flight_records, checkpoint.in_flight_bytes)}"
    )


def restored_line(event: events.JobRestored) -> str:
    """Which checkpoint an attempt goes on from, and how much it works off again."""
    replayed = counted(event.in_flight_records, "in-flight record")
    source = f"checkpoint {event.checkpoint_id}"
    if event.savepoint is not None:
        source = f"savepoint {event.savepoint} ({source})"
    return (
        f"attempt {event.attempt} restored {source} in "
        f"{duration(event.duration)}, replaying {replayed}"
    )


def event_line(event: events.Event) -> str | None:
    """An event as a line; None for those that say nothing new to people."""
    match event:
        case events.JobStarted():
            return f"attempt {event.attempt} started from the beginning"
        case events.JobRestored():
            return restored_line(event)
        case events.JobRestarting():
            return f"failed: {event.error}; restarting in {duration(event.delay)}"
        case events.CheckpointCompleted() | events.CheckpointFailed():
            return checkpoint_line(CheckpointStatistics.from_dict(event.statistics))
        case events.SavepointWritten():
            return f"savepoint of checkpoint {event.checkpoint_id} written to {event.path}"
        case events.CheckpointOverdue():
            age = "there is none" if event.age is None else f"it is {duration(event.age)} old"
            return f"ALARM: the last complete checkpoint is overdue ({age})"
        case events.EventLoopHeld():
            return f"SLOW: {event.told()}"
        case events.BreakerOpened():
            return (
                f"step {event.step}: calls are held back for {duration(event.pause)}, too many "
                f"have failed: {event.error}"
            )
        case events.BreakerClosed():
            return f"step {event.step}: calls are made again"
        case events.JournalFailed():
            return f"answers are not journaled for now: {event.error}"
    return None


def print_json(content: Any, stdout: TextIO) -> None:
    """Print one line of JSON and flush it; what JSON cannot hold as its repr."""
    stdout.write(orjson.dumps(content, default=repr, option=orjson.OPT_NON_STR_KEYS).decode())
    stdout.write("\n")
    stdout.flush()
