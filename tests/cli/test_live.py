from __future__ import annotations

import io

from rich.console import Console, RenderableType

import streamcp as sc
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.cli.live import Live
from streamcp.cli.tables import checkpoint_table, step_table
from streamcp.config import JobSettings
from streamcp.observability.events import CheckpointTriggered
from streamcp.runners import local
from streamcp.runners.view import JobView, StepView, TaskView

NOW = 1_700_000_000_000


def _view(
    at: float,
    records: int,
    *,
    queued: int = 0,
    finished: bool = False,
    aligning: float = 0.0,
    watermark: int | None = None,
) -> JobView:
    step = StepView("parse", "lookup", records, records * 2, 3, 0, 6, 2, watermark)
    task = TaskView(
        "work", 2, at * 0.5, at * 0.2, at * 0.3, aligning, records, queued, 400, finished, (step,)
    )
    return JobView("j", "running", 1, at, NOW, "adaptive", None, None, (task,), ())


def _drawn(table: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out, width=150).print(table)
    return out.getvalue()


def test_steps_show_rates_shares_and_queues() -> None:
    text = _drawn(step_table(_view(10.0, 100), _view(12.0, 300, queued=200)))
    assert "work ×2" in text
    assert " 50/20/30 " in text
    assert "200/400" in text
    assert "parse (3 dropped) (75 % from the cache)" in text
    assert text.split()[-3:] == ["100", "200", "300"]


def test_source_that_waits_for_others_of_its_group_says_so() -> None:
    now = _view(12.0, 1, aligning=1.0)
    assert " align 33 " in _drawn(step_table(_view(10.0, 1), now))


def test_event_time_is_shown_behind_the_clock_where_there_is_any() -> None:
    with_time = _view(12.0, 1, watermark=NOW - 3_500)
    text = _drawn(step_table(_view(10.0, 1), with_time))
    assert "event time" in text
    assert "3.50 s behind" in text
    assert "event time" not in _drawn(step_table(_view(10.0, 1), _view(12.0, 1)))


def test_finished_task_says_so() -> None:
    assert "finished" in _drawn(step_table(_view(10.0, 1), _view(12.0, 1, finished=True)))


def test_first_picture_has_no_rates() -> None:
    assert "0/400" in _drawn(step_table(_view(10.0, 5), _view(10.0, 5)))


def test_checkpoints_show_the_running_one_first_and_reasons_of_failures() -> None:
    ended = [
        CheckpointStatistics(checkpoint_id=1, outcome="completed", durable_delay=0.01),
        CheckpointStatistics(checkpoint_id=2, outcome="failed", failure="EXPIRED"),
    ]
    running = CheckpointTriggered(0, 3, "periodic", "unaligned", "")
    lines = _drawn(checkpoint_table(ended, [running])).splitlines()
    assert [line.split()[0] for line in lines] == ["checkpoint", "3", "2", "1"]
    assert "expired" in lines[2]
    assert "10.0 ms" in lines[3]


async def test_live_view_draws_the_job_and_scrolls_what_happens() -> None:
    out = io.StringIO()
    console = Console(file=out, width=150, force_terminal=True, highlight=False)
    job = sc.Job("shown")
    job.source(sc.items(range(10)), name="in").sink(sc.discard(), name="out")
    live = Live(console, JobSettings(), lambda: "now")
    async with local.start(job.name, job.graph, JobSettings(), ()) as running, live.watch(running):
        live.ended(await running.wait_finished())
    text = out.getvalue()
    assert "job shown, attempt 1: ended" in text
    assert "now attempt 1 started from the beginning" in text
    assert "now job shown finished" in text
