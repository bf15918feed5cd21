"""The table and the verdict say everything that went wrong."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

from rich.console import Console

from streamcp.checkpoint.statistics import Figure
from streamcp.cli.compare_report import as_json, conclusion, table
from streamcp.compare.experiment import Experiment
from streamcp.compare.figures import Comparison, ModeFigures, Recovery, Verdict
from streamcp.compare.outputs import Difference

EQUAL = Verdict("equal", 1000)
UNEQUAL = Verdict(
    "unequal",
    1000,
    Difference(missing=1, extra=20, examples_missing=("3-out: a",), examples_extra=("3-out: b",)),
)
GOOD = ModeFigures(
    mode="unaligned",
    completed=12,
    failed=0,
    failures={},
    unaligned=12,
    escalated=0,
    barrier_delay=Figure(0.001, 0.002),
    durable_delay=Figure(0.01, 0.02),
    alignment=Figure(0.0, 0.0),
    in_flight_records=Figure(2000, 3000),
    in_flight_bytes=Figure(100_000, 200_000),
    snapshot_bytes=Figure(110_000, 210_000),
    queued=Figure(2000, 2100),
    records_per_second=1234.5,
    recovery=Recovery(
        killed_after=4.0, checkpoint=3, replayed=1999, restore=0.5, first_output=0.05, back=1.5
    ),
    verdict=EQUAL,
    errors=(),
)
NEVER = dataclasses.replace(
    GOOD,
    mode="aligned",
    completed=0,
    failed=5,
    failures={"EXPIRED": 5},
    barrier_delay=None,
    durable_delay=None,
    recovery=Recovery(killed_after=4.0, checkpoint=None, replayed=0),
)


def shown(*modes: ModeFigures) -> str:
    out = Console(file=io.StringIO(), width=120)
    out.print(table(Comparison(modes, EQUAL), "a title"))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def row(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.strip("│ ").startswith(name))
    return [cell.strip() for cell in line.strip("│").split("│")][1:]


def said(*modes: ModeFigures, undisturbed: Verdict = EQUAL) -> str:
    return "\n".join(conclusion(Comparison(modes, undisturbed), "the/runs"))


def test_table_has_a_column_per_mode() -> None:
    text = shown(NEVER, GOOD)

    assert row(text, "checkpoints completed") == ["0", "12"]
    assert row(text, "records/s") == ["1,234", "1,234"]
    assert row(text, "in-flight bytes, p50 / max")[1] == "100.0 kB / 200.0 kB"
    assert row(text, "output as undisturbed") == ["equal", "equal"]


def test_checkpoints_that_never_complete_are_shown_as_such() -> None:
    text = shown(NEVER, GOOD)

    assert row(text, "checkpoints failed")[0] == "5 (5 expired)"
    assert row(text, "barrier delay, p50 / max")[0] == "never completed"
    assert row(text, "restored from")[0] == "the beginning (no checkpoint)"


def test_equal_outputs_are_told_in_one_sentence() -> None:
    assert said(NEVER, GOOD) == (
        "The output after the kill equals the undisturbed output in every mode, record for record "
        "(1,000 lines)."
    )


def test_unequal_output_is_told_with_examples_and_where_the_files_are() -> None:
    text = said(GOOD, dataclasses.replace(GOOD, mode="adaptive", verdict=UNEQUAL))

    assert "adaptive: the output after the kill IS NOT EQUAL: 1 line missing, 20 too many" in text
    assert "missing: 3-out: a" in text
    assert "too many: 3-out: b" in text
    assert "the/runs" in text
    assert "equals" not in text


def test_undisturbed_runs_that_differ_are_told_to_make_the_rest_doubtful() -> None:
    text = said(GOOD, undisturbed=UNEQUAL)

    assert "the undisturbed runs differ from each other" in text
    assert "cannot tell" in text


def test_runs_that_did_not_end_are_told() -> None:
    text = said(
        dataclasses.replace(
            GOOD,
            errors=("cut off after 9 s",),
            recovery=Recovery(error="the service is gone"),
            verdict=Verdict("unknown", why="the killed run has no whole output"),
        )
    )

    assert "A RUN DID NOT END: cut off after 9 s" in text
    assert "THE KILLED RUN DID NOT END: the service is gone" in text
    assert "was not compared: the killed run has no whole output" in text


def test_results_hold_figures_and_settings() -> None:
    settings: dict[str, Any] = {"job": "numbers"}

    results = as_json(Experiment(), Comparison((NEVER, GOOD), EQUAL), settings)

    assert results["right"] is True
    assert results["settings"] == settings
    assert results["modes"]["aligned"]["failures"] == {"EXPIRED": 5}
    assert results["modes"]["unaligned"]["barrier_delay"] == {"p50": 0.001, "maximum": 0.002}
