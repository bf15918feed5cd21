"""The programs of the page on joins do what the page says."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import lines_printed_by, programs_of

INTERVAL, WINDOW, ASOF, LOOKUP = programs_of("joins.md")


def test_program_prints_payments_and_what_was_not_paid(tmp_path: Path) -> None:
    assert sorted(lines_printed_by(INTERVAL, tmp_path)) == [
        "4.0 of 10.0 for order a",
        "6.0 of 10.0 for order a",
        "order b was not paid within the hour",
        "order c was not paid within the hour",
    ]


def test_program_prints_pairs_of_each_window(tmp_path: Path) -> None:
    assert sorted(lines_printed_by(WINDOW, tmp_path)) == [
        "berlin 0h: 1.0",
        "berlin 0h: 2.0",
        "paris 0h: -1.0",
        "paris 3h: None",
    ]


def test_program_prints_orders_with_the_rate_of_their_time(tmp_path: Path) -> None:
    assert sorted(lines_printed_by(ASOF, tmp_path)) == [
        "10.0 chf = ?",
        "10.0 usd = 8.0 eur",
        "10.0 usd = 9.0 eur",
    ]


def test_program_prints_a_line_for_each_order(tmp_path: Path) -> None:
    assert lines_printed_by(LOOKUP, tmp_path) == [
        "ann pays 5.0",
        "bob pays 7.0",
        "ann pays 9.0",
        "somebody pays 1.0",
    ]
