"""How far a comparison is: bars on a terminal, lines elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Bars:
    """Shows progress on a terminal: the run, and the whole."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._whole: TaskID | None = None
        self._run: TaskID | None = None
        self._number = 0

    def began(self, number: int, total: int, what: str) -> None:
        """A bar for the run."""
        if self._whole is None:
            self._whole = self._progress.add_task("all runs", total=total)
        self._number = number
        self._what = what
        self._run = self._progress.add_task(what, total=1.0)

    def advanced(self, share: float) -> None:
        """Move both bars."""
        assert self._run is not None
        assert self._whole is not None
        self._progress.update(self._run, completed=share)
        self._progress.update(self._whole, completed=self._number - 1 + share)

    def ended(self, summary: str) -> None:
        """Replace the bar of the run by a line."""
        assert self._run is not None
        self._progress.remove_task(self._run)
        line = f"{self._number}. {self._what}: {summary}"
        self._progress.console.print(line, highlight=False, markup=False)


class Lines:
    """Shows progress as lines, where there is no terminal."""

    def __init__(self, out: Console) -> None:
        self._out = out

    def began(self, number: int, total: int, what: str) -> None:
        """Remember what runs."""
        self._what = f"{number} of {total}, {what}"

    def advanced(self, share: float) -> None:
        """Say nothing: lines would pile up."""

    def ended(self, summary: str) -> None:
        """A line for the run."""
        self._out.print(f"{self._what}: {summary}")


def bars(out: Console) -> Progress:
    """Make the display of `Bars`."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=out, refresh_per_second=4, transient=True)
