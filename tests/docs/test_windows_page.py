"""The programs of the page on windows do what the page says."""

from __future__ import annotations

from pathlib import Path

import streamcp as sc
from streamcp.testing.running import run_job
from tests.docs.pages import lines_printed_by, programs_of

PROGRAM, OWN = programs_of("windows.md")


def test_program_prints_the_totals_of_each_minute(tmp_path: Path) -> None:
    assert sorted(lines_printed_by(PROGRAM, tmp_path)) == [
        "de 5.0 in 1",
        "de 7.0 in 1",
        "fr 1.0 in 1",
        "fr 12.5 in 2",
    ]


def test_own_aggregate_is_one_in_any_window() -> None:
    names: dict[str, type[sc.Aggregate[str, str]]] = {}
    exec(OWN, names)
    job = sc.Job("words")
    words = job.source(
        sc.items(["a", "abc", "ab", "abcd"]), name="words", watermarks=sc.Watermarks(len)
    )
    windows = words.key_by(lambda word: word[0]).window(sc.Sliding("3ms", "1ms"), name="longest")
    found = sc.collect()
    windows.aggregate(names["Longest"]()).sink(found, name="out")
    run_job(job)
    assert [(r.start, r.value) for r in found.records] == [
        (-1, "a"),
        (0, "ab"),
        (1, "abc"),
        (2, "abcd"),
        (3, "abcd"),
        (4, "abcd"),
    ]
