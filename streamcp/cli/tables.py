"""Tables of the live view: pure functions from views to what rich draws."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.cli import words
from streamcp.observability.events import CheckpointTriggered
from streamcp.runners.view import JobView, StepView, TaskView

# Everything fits into 80 columns.
SHARES_BAR, QUEUE_BAR = 6, 5
SHORTEST_NAME = 8
SHOWN_CHECKPOINTS = 8
_BUSY, _WAITING, _BACKPRESSURED, _ALIGNING = "green", "bright_black", "red", "magenta"
_STYLES = (_BUSY, _WAITING, _BACKPRESSURED, _ALIGNING)


def step_table(before: JobView, now: JobView) -> Table:
    """The steps task by task; rates and shares are those between the two views. Where there is
    event time, also how far it has come."""
    table = _table()
    table.add_column("task", no_wrap=True, min_width=SHORTEST_NAME)
    table.add_column("busy/wait/back %", no_wrap=True)
    table.add_column("input queue", no_wrap=True)
    table.add_column("step", no_wrap=True, min_width=SHORTEST_NAME)
    for name in ("in/s", "out/s", "records"):
        table.add_column(name, justify="right", no_wrap=True)
    timed = any(step.watermark is not None for task in now.tasks for step in task.steps)
    if timed:
        table.add_column("event time", justify="right", no_wrap=True)
    earlier = {task.name: task for task in before.tasks}
    seconds = now.at - before.at
    for task in now.tasks:
        old = earlier.get(task.name, task)
        own = [_task_name(task), _shares(old, task, seconds), _queue(task)]
        for old_step, step in zip(old.steps, task.steps, strict=True):
            time = [words.event_time(step.watermark, now.time)] if timed else []
            table.add_row(*own, *_step_cells(old_step, step, seconds), *time)
            own = [Text(), Text(), Text()]
    return table


def checkpoint_table(
    checkpoints: Sequence[CheckpointStatistics], running: Sequence[CheckpointTriggered]
) -> Table:
    """The newest checkpoints, the newest first; above them those that run."""
    table = _table()
    for name in ("checkpoint", "kind", "mode"):
        table.add_column(name)
    for name in ("barrier", "durable", "in flight", "", "state"):
        table.add_column(name, justify="right", no_wrap=True)
    for event in reversed(running):
        table.add_row(str(event.checkpoint_id), event.kind, event.mode, "…", style="dim")
    for one in reversed(checkpoints[-SHOWN_CHECKPOINTS:]):
        table.add_row(*_checkpoint_cells(one), style="red" if one.outcome == "failed" else "")
    return table


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))


def _task_name(task: TaskView) -> Text:
    times = f" ×{task.parallelism}" if task.parallelism > 1 else ""
    return Text(f"{task.name}{times}", style="dim" if task.finished else "")


def _shares(old: TaskView, new: TaskView, seconds: float) -> Text:
    """A bar of four colours, and the shares in percent; what is not known yet is left empty. Of a
    source that waits for others of its group only that is said: it is what there is to know."""
    if new.finished:
        return Text("finished", style="dim")
    deltas = [
        max(0.0, getattr(new, name) - getattr(old, name))
        for name in ("busy", "idle", "backpressured", "aligning")
    ]
    whole = max(seconds, sum(deltas))
    if whole <= 0:
        return Text()
    bar, filled, so_far = Text(), 0, 0.0
    for delta, style in zip(deltas, _STYLES, strict=True):
        so_far += delta
        end = round(SHARES_BAR * so_far / whole)
        bar.append("█" * (end - filled), style=style)
        filled = end
    bar.append("·" * (SHARES_BAR - filled), style="dim")
    *shares, aligning = (f"{100 * delta / whole:.0f}" for delta in deltas)
    if aligning != "0":
        return bar.append(f" align {aligning}", style=_ALIGNING)
    return bar.append(f" {'/'.join(shares)}")


def _queue(task: TaskView) -> Text:
    if task.capacity == 0:
        return Text()
    share = min(1.0, task.queued / task.capacity)
    filled = round(QUEUE_BAR * share)
    bar = Text("█" * filled, style=_BACKPRESSURED if share > 0.9 else "cyan")
    bar.append("·" * (QUEUE_BAR - filled), style="dim")
    return bar.append(f" {words.number(task.queued)}/{words.number(task.capacity)}")


def _step_cells(old: StepView, new: StepView, seconds: float) -> list[Text]:
    name = Text(new.name)
    for count, word in ((new.dropped, "dropped"), (new.retries, "retries")):
        if count:
            name.append(f" ({count:,} {word})", style="yellow")
    if asked := new.cache_hits + new.cache_misses:
        name.append(f" ({100 * new.cache_hits / asked:.0f} % from the cache)", style="dim")
    total = new.records_out if new.verb == "source" else new.records_in
    return [
        name,
        _rate(old.records_in, new.records_in, seconds),
        _rate(old.records_out, new.records_out, seconds),
        Text(words.number(total)),
    ]


def _rate(old: int, new: int, seconds: float) -> Text:
    return Text(words.number((new - old) / seconds) if seconds > 0 else "")


def _checkpoint_cells(one: CheckpointStatistics) -> list[str]:
    head = [str(one.checkpoint_id), one.kind, words.mode(one)]
    if one.outcome == "failed":
        return [*head, "failed", (one.failure or "").lower().replace("_", " ")]
    return [
        *head,
        words.duration(one.barrier_delay),
        words.duration(one.durable_delay),
        words.number(one.in_flight_records),
        words.size(one.in_flight_bytes),
        words.size(one.state_bytes),
    ]
