"""The programs of the page on joins do what the page says."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import lines_printed_by, programs_of

[INTERVAL] = programs_of("joins.md")


def test_program_prints_payments_and_what_was_not_paid(tmp_path: Path) -> None:
    assert sorted(lines_printed_by(INTERVAL, tmp_path)) == [
        "4.0 of 10.0 for order a",
        "6.0 of 10.0 for order a",
        "order b was not paid within the hour",
        "order c was not paid within the hour",
    ]
