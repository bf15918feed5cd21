"""Outputs are compared as multisets of lines, sink by sink."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from streamcp.compare.outputs import difference, read_output, remove_folder

OUTPUTS = st.lists(st.sampled_from([b"a", b"b", b"c"])).map(Counter)


def write(folder: Path, name: str, *lines: str) -> None:
    path = folder / "output" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def test_committed_lines_of_all_sinks_are_read(tmp_path: Path) -> None:
    write(tmp_path, "1-left/a.jsonl", "1", "2", "1")
    write(tmp_path, "1-left/b.jsonl", "1")
    write(tmp_path, "2-right/a.jsonl", "1")
    write(tmp_path, "2-right/.c.pending", "9")

    assert read_output(tmp_path) == {b"1-left: 1": 3, b"1-left: 2": 1, b"2-right: 1": 1}


def test_run_without_output_gives_nothing(tmp_path: Path) -> None:
    assert read_output(tmp_path) == {}


@given(OUTPUTS)
def test_equal_outputs_do_not_differ(output: Counter[bytes]) -> None:
    assert not difference(output, Counter(output))


@given(expected=OUTPUTS, found=OUTPUTS)
def test_difference_counts_what_is_missing_and_what_is_too_many(
    expected: Counter[bytes], found: Counter[bytes]
) -> None:
    differs = difference(expected, found)

    assert differs.missing - differs.extra == expected.total() - found.total()
    assert bool(differs) == (expected != found)


def test_difference_shows_some_of_the_lines() -> None:
    expected = Counter({b"x: %d" % number: 2 for number in range(9)})
    found = Counter({b"x: 0": 3})

    differs = difference(expected, found)

    assert (differs.missing, differs.extra) == (16, 1)
    assert differs.examples_missing == ("x: 1", "x: 2", "x: 3")
    assert differs.examples_extra == ("x: 0",)


def test_folder_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    write(tmp_path / "runs", "1-left/a.jsonl", "1")

    remove_folder(tmp_path / "runs")

    assert list(tmp_path.iterdir()) == []
