"""CheckMate's queries: their answers, their input, and that what is missing would be noticed."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamcp as sc
from benchmarks.checkmate import measuring
from benchmarks.checkmate.changes import Change, changes
from benchmarks.checkmate.measuring import QUERIES, Cell, Sizes, account_rows, cells, make_input
from benchmarks.checkmate.reachability import Path as Reached
from benchmarks.checkmate.reachability import Step, _round
from benchmarks.harness.command import main
from benchmarks.harness.open_loop import Schedule
from benchmarks.nexmark.generator import Auctioneering, events
from benchmarks.nexmark.model import Bid, Event
from benchmarks.workloads.killing import Life
from benchmarks.workloads.surviving import Written
from streamcp.testing.running import run_job


def answers(query: str, made: list[Any]) -> list[tuple[int, int]]:
    """Run a query over events whose intended times are their indexes."""
    kept = sc.collect()
    job = sc.Job(query, parallelism=2)
    stamped = job.source(sc.items([*enumerate(made)]), name="events").rebalance()
    QUERIES[query](stamped).sink(lambda: kept, name="results")
    run_job(job)
    records: list[tuple[int, int]] = kept.records
    return records


# ---- the queries


@given(
    st.lists(st.integers(0, 5), max_size=4),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8),
    st.randoms(),
)
@settings(max_examples=25, deadline=None)
def test_every_path_without_a_circle_is_found_whatever_comes_first(
    sources: list[int], links: list[tuple[int, int]], chance: Any
) -> None:
    made = [Change("add source", node) for node in sources]
    made += [Change("add link", *link) for link in links]
    chance.shuffle(made)
    kept = sc.collect()
    job = sc.Job("paths", parallelism=2)
    steps: sc.Stream[Step] = job.source(sc.items([(0, one) for one in made]), name="changes")
    steps.rebalance().iterate(_round, name="paths").sink(lambda: kept, name="results")
    run_job(job)
    found = [step[1].nodes for step in kept.records if isinstance(step[1], Reached)]
    assert Counter(found) == Counter(paths(sources, links))


def paths(sources: list[int], links: list[tuple[int, int]]) -> list[tuple[int, ...]]:
    """All of them, by trying."""
    found, waiting = list[tuple[int, ...]](), [*map(alone, sources)]
    while waiting:
        path = waiting.pop()
        found.append(path)
        waiting += [(*path, to) for at, to in links if at == path[-1] and to not in path]
    return found


def alone(node: int) -> tuple[int, ...]:
    """The path from a source to itself."""
    return (node,)


@pytest.mark.parametrize("query", ["q1", "q3", "q12", "cyclic"])
def test_an_undisturbed_run_gives_exactly_what_is_required(query: str) -> None:
    made = make_input(Cell(query, "aligned", 0.2, 1000), 600, 7)
    assert [row.value for row in accounted(query, made, answers(query, made))] == [0, 1]


def test_q12_counts_the_bids_of_each_bidder_from_one() -> None:
    made = make_input(Cell("q12", "aligned", 0.2, 1000), 300, 7)
    counts = Counter(made[index].bidder for index, _ in answers("q12", made))
    found = Counter((made[index].bidder, number) for index, number in answers("q12", made))
    assert found == Counter(
        (bidder, number) for bidder, n in counts.items() for number in range(1, n + 1)
    )


# ---- what would be noticed


def accounted(query: str, made: list[Any], found: list[tuple[int, int]]) -> list[Any]:
    """Account for results whose stamps are indexes."""
    life = Life(Schedule(1000, len(made)))
    times = life.schedule.times()
    stamps = [times.intended(index) for index, _ in found]
    life.written = [Written(0, stamps, [number for _, number in found])]
    return account_rows(Cell(query, "aligned", 0, 1000), life, made)


@pytest.mark.parametrize("query", ["q1", "q3", "q12", "cyclic"])
def test_a_missing_result_and_one_that_comes_twice_are_told(query: str) -> None:
    made = make_input(Cell(query, "aligned", 0.0, 1000), 600, 7)
    found = answers(query, made)
    required = found
    if query == "cyclic":  # what else can be reached depends on others
        required = [one for one in found if one[1] == 1]
    again, complete = accounted(query, made, [*found, required[0]])
    assert (again.value, complete.value) == (1, 1)
    without = [one for one in found if one != required[0]]
    again, complete = accounted(query, made, without)
    assert (again.value, complete.value) == (0, 0)


# ---- the input


def test_nothing_is_deleted_that_is_not_there() -> None:
    there = Counter[tuple[str, int, int]]()
    made = changes(5000, 3)
    for one in made:
        verb, what = one.kind.split()
        there[what, one.node, one.to] += 1 if verb == "add" else -1
        assert there[what, one.node, one.to] >= 0
    kinds = Counter(one.kind for one in made)
    assert set(kinds) == {"add source", "delete source", "add link", "delete link"}
    assert changes(5000, 3) == made
    assert changes(5000, 4) != made


def test_people_and_auctions_come_alone_at_the_times_they_had_among_bids() -> None:
    few = events(40, Auctioneering(seed=1, bids=False))
    all_of_them = events(500, Auctioneering(seed=1))
    assert told(few) == told([one for one in all_of_them if not isinstance(one, Bid)])


def told(made: Sequence[Event]) -> list[tuple[type, int, int]]:
    """Kind, id and time of people and auctions."""
    assert not any(isinstance(one, Bid) for one in made)
    return [(type(one), one.id, one.time) for one in made if not isinstance(one, Bid)]


def test_modes_take_turns_in_the_order() -> None:
    sizes = Sizes({"q1": 1, "q12": 1}, 1, 1, 1, hot=(0.0, 0.1), modes=("aligned", "unaligned"))
    order = [(cell.query, cell.hot, cell.mode) for cell in cells(sizes)]
    assert order == [
        ("q1", 0.0, "aligned"),
        ("q1", 0.0, "unaligned"),
        ("q12", 0.0, "unaligned"),
        ("q12", 0.0, "aligned"),
        ("q12", 0.1, "aligned"),
        ("q12", 0.1, "unaligned"),
    ]


# ---- short form


def test_checkmate(tmp_path: Path) -> None:
    sizes = Sizes({"q8": 1000, "cyclic": 500}, 1.2, 0.4, 0.1, (0.0,), ("adaptive",))
    file = tmp_path / "figures.json"
    suite = dataclasses.replace(measuring.SUITE, full=sizes)
    main([suite], ["run", "checkmate", "--here", "--json", str(file)])
    rows = json.loads(file.read_text("utf-8"))["benchmarks"][0]["rows"]
    complete = [row for row in rows if row["target"] is not None]
    assert [row["verdict"] for row in complete] == ["met"]
