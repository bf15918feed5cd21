"""Progress is a bar where there is a terminal, and a line per run elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from streamcp.cli.compare_progress import Bars, Lines, bars
from streamcp.compare.experiment import Observer


def watch_two_runs(observer: Observer) -> None:
    for number, mode in enumerate(("aligned", "unaligned"), start=1):
        observer.began(number, 2, mode)
        observer.advanced(0.5)
        observer.advanced(1.0)
        observer.ended("10 records in 1.0 s")


def test_without_a_terminal_each_run_is_a_line() -> None:
    out = Console(file=io.StringIO(), width=100)

    watch_two_runs(Lines(out))

    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue().splitlines() == [
        "1 of 2, aligned: 10 records in 1.0 s",
        "2 of 2, unaligned: 10 records in 1.0 s",
    ]


def test_on_a_terminal_the_bar_of_all_runs_fills() -> None:
    out = Console(file=io.StringIO(), width=100, force_terminal=True)

    with bars(out) as progress:
        watch_two_runs(Bars(progress))
        (whole,) = progress.tasks
        assert (whole.description, whole.completed, whole.total) == ("all runs", 2.0, 2)

    assert isinstance(out.file, io.StringIO)
    assert "2. unaligned: 10 records in 1.0 s" in out.file.getvalue()
