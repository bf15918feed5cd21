"""The simulator finds planted faults: those that are found soon, from their recorded seeds."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from tests.planted.hunting import LIMIT, Result, found_seeds, hunt, recorded, row
from tests.planted.patching import PACKAGE, Change, DoesNotApply, Fault, faults, read

# Enough to see that the hunt works; `python -m tests.planted --check` repeats the others.
REPEATED = 4
# Where it looks if a change has made the recorded seed another run.
NEARBY = 40

PAGE = PACKAGE.parent / "docs" / "explanation" / "simulation.md"
FOUND = found_seeds()
SOONEST = sorted(FOUND, key=lambda name: (FOUND[name], name))[:REPEATED]
FAULTS = {one.name: one for one in faults()}


@pytest.mark.parametrize("name", SOONEST)
def test_planted_fault_breaks_an_invariant(name: str) -> None:
    seed = FOUND[name]
    result = hunt(FAULTS[name], seed, seed)
    if result.failure is None:
        result = hunt(FAULTS[name], 0, NEARBY)
    assert result.failure is not None, f"record it anew: python -m tests.planted {name} --record"


def test_package_without_a_fault_breaks_none() -> None:
    seeds = [FOUND[name] for name in SOONEST]
    assert hunt(None, min(seeds), max(seeds)).failure is None


def test_twenty_faults_are_recorded_as_found_in_time() -> None:
    assert recorded().keys() == FAULTS.keys()
    assert len(FOUND) >= 20
    assert max(FOUND.values()) < LIMIT


@pytest.mark.parametrize("name", FAULTS)
def test_page_says_after_how_many_seeds_a_fault_is_found(name: str) -> None:
    """If not: `python -m tests.planted --table` prints the table."""
    assert row(FAULTS[name]) in PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", FAULTS)
def test_patch_applies_to_the_package_and_leaves_it_python(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    for file in {change.file for change in fault.changes}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PACKAGE.parent / file, tmp_path / file)
    fault.apply(tmp_path)
    assert fault.sentence.endswith(".")
    for change in fault.changes:
        ast.parse((tmp_path / change.file).read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["nothing of it", "old\nold\n"])
def test_patch_whose_text_is_not_there_once_fails_loudly(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    with pytest.raises(DoesNotApply, match=r"wrong\.patch"):
        Fault("wrong", "It is wrong.", (Change("a.py", "old\n", "new\n"),)).apply(tmp_path)


def test_patch_is_read_as_a_sentence_and_changes_of_several_files(tmp_path: Path) -> None:
    path = tmp_path / "two-files.patch"
    path.write_text(
        "Something\nis wrong.\n"
        "--- a/one.py\n+++ b/one.py\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n@@ -9 +9 @@\n-more\n"
        "--- a/two.py\n+++ b/two.py\n@@ -1 +1 @@\n+added\n same\n",
        encoding="utf-8",
    )
    assert read(path) == Fault(
        "two-files",
        "Something is wrong.",
        (
            Change("one.py", "same\nold\n", "same\nnew\n"),
            Change("one.py", "more\n", ""),
            Change("two.py", "same\n", "added\nsame\n"),
        ),
    )


def test_result_names_the_invariant_that_broke() -> None:
    def name(failure: str | None) -> str:
        return Result(7, failure).invariant

    assert name("Violation: I1: a sink has too few") == "I1"
    assert name("Violation: the job does not finish undisturbed: failed") == "does not finish"
    assert name("WaitsForever: nothing is ready") == "waits for ever"
    assert name("raised KeyError: 3") == "raised KeyError"
    assert name(None) == "nothing"
