"""`strict=True`: changes of shared records and undeclared types are found; nothing else is."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import JobFailed, StrictFailed
from streamcp.runners.life import first_cause
from streamcp.testing.running import run_job

Stream = Any


@dataclass
class Order:
    id: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Book:
    orders: list[Order] = field(default_factory=list)


class Client:
    """No data class: no snapshot can hold it."""

    def __init__(self, number: int) -> None:
        self.number = number


def rename(order: Order) -> Order:
    order.tags.append("renamed")
    return order


def renamed(order: Order) -> Order:
    return replace(order, tags=[*order.tags, "renamed"])


async def rename_slowly(order: Order) -> Order:
    await asyncio.sleep(0.001)
    return rename(order)


async def write_renamed(orders: Sequence[Order]) -> None:
    for order in orders:
        rename(order)


def keep(order: Order, book: Book, context: sc.KeyContext[int]) -> list[Order]:
    book.orders.append(order)
    return [order]


def rename_kept(order: Order, book: Book, context: sc.KeyContext[int]) -> list[Order]:
    book.orders.append(order)
    return [rename(book.orders[0])]


def rename_last_kept(order: Order, book: Book, context: sc.KeyContext[int]) -> list[Order]:
    if book.orders:
        rename(book.orders[-1])
    return keep(order, book, context)


async def keep_slowly(order: Order, book: Book, context: sc.KeyContext[int]) -> list[Order]:
    await asyncio.sleep(0.001)
    return keep(order, book, context)


def hand_over(order: Order, book: Book, context: sc.KeyContext[int]) -> list[list[Order]]:
    """Emit what was collected and keep nothing of it."""
    book.orders.append(order)
    context.clear_state()
    return [book.orders]


def extend(book: Book, order: Order) -> Book:
    book.orders.append(order)
    return Book(book.orders[:])


def merge(old: Order, order: Order) -> Order:
    old.tags.append("merged")
    return replace(order)


def learn(order: Order, known: Book) -> None:
    rename(order)


def judge(order: Order, known: Book) -> list[Order]:
    return [order]


def out(stream: Stream, name: str = "out") -> object:
    return stream.sink(sc.discard(), name=name)


def keyed(stream: Stream) -> Stream:
    return stream.key_by(lambda order: 0)


def run(draw: Callable[[Stream], object], *, strict: bool | None = None) -> None:
    job = sc.Job("job", strict=strict)
    orders = [Order(n) for n in range(5)]
    draw(job.source(sc.items(orders), name="read"))
    run_job(job)


def found(draw: Callable[[Stream], object]) -> str:
    with pytest.raises(JobFailed) as caught:
        run(draw)
    cause = first_cause(caught.value)
    while not isinstance(cause, StrictFailed):
        assert cause.__cause__ is not None, cause
        cause = cause.__cause__
    return str(cause)


# ---- what is changed in place although others have it


def two_readers(change: Callable[[Stream], object]) -> Callable[[Stream], object]:
    def draw(read: Stream) -> None:
        out(read)
        change(read)

    return draw


SHARED: dict[str, tuple[Callable[[Stream], object], str, str]] = {
    "fan_out": (two_readers(lambda s: out(s.map(rename, name="m"), "b")), "'m'", "'read'"),
    "tap": (lambda s: out(s.tap(out).map(rename, name="m"), "b"), "'m'", "'read'"),
    "in_a_tap": (
        lambda s: out(s.tap(lambda t: out(t.inspect(rename, name="m"), "b"))),
        "'m'",
        "'read'",
    ),
    "first_of_two": (
        lambda s: (out(s.map(rename, name="m")), out(s, "b")),
        "'m'",
        "'read'",
    ),
    "union_with_itself": (lambda s: out(s.union(s).map(rename, name="m")), "'m'", "'read'"),
    "two_sides_of_a_branch": (
        lambda s: [
            (out(side, f"{n}"), out(side.map(rename, name=f"m{n}"), f"b{n}"))
            for n, side in enumerate(s.branch(lambda order: order.id < 9, name="halves"))
        ],
        "'m0'",
        "'halves'",
    ),
    "through_a_filter": (
        two_readers(lambda s: out(s.filter(bool).inspect(rename, name="m"), "b")),
        "'m'",
        "'read'",
    ),
    "branch": (
        two_readers(lambda s: out(s.branch(rename, name="m")[0], "b")),
        "'m'",
        "'read'",
    ),
    "flat_map": (
        two_readers(lambda s: out(s.flat_map(lambda o: iter([rename(o)]), name="m"), "b")),
        "'m'",
        "'read'",
    ),
    "coroutine": (two_readers(lambda s: out(s.map(rename_slowly, name="m"), "b")), "'m'", "'read'"),
    "thread": (
        two_readers(lambda s: out(s.map(rename, executor="thread", name="m"), "b")),
        "'m'",
        "'read'",
    ),
    "sink": (two_readers(lambda s: s.sink(write_renamed, name="m")), "'m'", "'read'"),
    "another_task": (
        two_readers(
            lambda s: out(s.rebalance().map(rename, name="m", parallelism=2).rebalance(), "b")
        ),
        "'m'",
        "'read'",
    ),
    "in_a_batch": (
        two_readers(
            lambda s: out(
                s.batch(2, "1s", name="two").map(lambda two: rename(two[1]), name="m"), "b"
            )
        ),
        "'m'",
        "'read'",
    ),
    "keyed": (
        two_readers(lambda s: out(keyed(s).process(rename_kept, state=Book, name="m"), "b")),
        "'m'",
        "'read'",
    ),
    "kept_in_state_and_emitted": (
        lambda s: out(keyed(s).process(keep, state=Book, name="k").map(rename, name="m")),
        "'m'",
        "'k'",
    ),
    "kept_by_a_coroutine": (
        lambda s: out(keyed(s).process(keep_slowly, state=Book, name="k").map(rename, name="m")),
        "'m'",
        "'k'",
    ),
    "emitted_and_changed_in_state": (
        lambda s: out(keyed(s).process(rename_last_kept, state=Book, name="m")),
        "'m'",
        "'m'",
    ),
    "reduced": (
        lambda s: out(keyed(s).reduce(lambda a, b: b, name="k").map(rename, name="m")),
        "'m'",
        "'k'",
    ),
    "old_value_of_reduce": (lambda s: out(keyed(s).reduce(merge, name="m")), "'m'", "emitted"),
    "old_value_of_scan": (lambda s: out(keyed(s).scan(Book, extend, name="m")), "'m'", "emitted"),
    "broadcast": (
        lambda s: out(
            s.rebalance()
            .connect(s.broadcast())
            .process(judge, learn, broadcast_state=Book, name="m", parallelism=2)
            .rebalance()
        ),
        "'m'",
        "'read'",
    ),
}


@pytest.mark.parametrize("kind", SHARED)
def test_change_of_a_shared_record_names_both_steps_and_places(kind: str) -> None:
    draw, changer, sharer = SHARED[kind]
    text = found(draw)
    assert text.startswith(f"step {changer} (")
    assert sharer in text
    assert text.count("test_strictness.py:") >= 1
    assert "Order(id=" in text or "Book(" in text


@pytest.mark.parametrize("on_error", ["drop", "divert"])
def test_no_on_error_hides_it(on_error: str) -> None:
    def draw(read: Stream) -> None:
        out(read)
        step = read.map(rename, name="m", on_error=on_error)
        out(step, "b")
        if on_error == "divert":
            out(step.errors, "c")

    assert "step 'm'" in found(draw)


def test_change_by_a_function_that_kept_it_is_found_by_the_next_that_gets_it() -> None:
    kept: list[Order] = []

    def look(order: Order) -> None:
        if kept:
            kept[-1].tags.append("late")
        kept.append(order)

    def draw(read: Stream) -> None:
        out(read.map(renamed))
        out(read.inspect(look, name="look").rebalance().map(renamed, name="m"), "b")

    assert "since another one had it" in found(draw)


# ---- what is allowed


class Ugly:
    """Its text is another one each time."""

    def __init__(self) -> None:
        self.shown = 0

    def __repr__(self) -> str:
        self.shown += 1
        return f"Ugly {self.shown}"


@dataclass
class Odd:
    """Equal to nothing, not even to itself; its parts have no order."""

    number: float = math.nan
    words: set[str] = field(default_factory=lambda: {"a", "b", "c"})
    ugly: Ugly = field(default_factory=Ugly)


def hash_and_show(odd: Any) -> Any:
    repr(odd)
    return odd


def itself() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


ALLOWED: dict[str, Callable[[Stream], object]] = {
    "unchanged": two_readers(lambda s: out(s.map(lambda o: o).filter(bool), "b")),
    "copies": two_readers(lambda s: out(s.map(renamed).map(rename), "b")),
    "one_reader": lambda s: out(s.map(rename).map(rename_slowly, name="slow").map(rename)),
    "one_side_each": lambda s: [
        out(side.map(rename), f"{n}")
        for n, side in enumerate(s.branch(lambda order: order.id > 2, name="halves"))
    ],
    "state_changed_in_place": lambda s: out(
        keyed(s).process(lambda o, b, c: b.orders.append(rename(o)), state=Book, name="k")
    ),
    "cleared_state": lambda s: out(
        keyed(s).process(hand_over, state=Book, name="k").inspect(list.clear, name="clear")
    ),
    "kept_and_unchanged": lambda s: out(keyed(s).process(keep, state=Book, name="k").map(renamed)),
    "unlike_itself": lambda s: [
        out(s.map(lambda o: Odd()).tap(lambda t: out(t.map(hash_and_show))).map(hash_and_show), "b")
    ],
    "in_itself": lambda s: out(s.map(lambda o: itself()).tap(out).map(len), "b"),
    "scanned": lambda s: out(
        keyed(s).scan(Book, lambda book, order: Book([*book.orders, order]), name="k")
    ),
    "undeclared_without_snapshots": lambda s: out(
        s.map(lambda o: Client(o.id)).rebalance().map(lambda client: client.number)
    ),
}


@pytest.mark.parametrize("kind", ALLOWED)
def test_what_is_right_is_no_alarm(kind: str) -> None:
    run(ALLOWED[kind])


def test_job_that_is_not_strict_is_not_looked_at() -> None:
    run(SHARED["fan_out"][0], strict=False)


# ---- types that no snapshot can hold


def as_client(order: Order) -> Any:
    return Client(order.id)


async def as_client_slowly(order: Order) -> Any:
    return Client(order.id)


def keep_client(order: Order, book: Any, context: sc.KeyContext[int]) -> None:
    book["client"] = as_client(order)


UNDECLARED: dict[str, Callable[[Stream], object]] = {
    "source": out,
    "exchange": lambda s: out(
        s.map(as_client, name="m").rebalance().map(str, parallelism=2).rebalance()
    ),
    "exchange_by_key": lambda s: out(
        s.map(as_client, name="m").key_by(str).count(name="n", parallelism=2).rebalance()
    ),
    "key": lambda s: out(s.key_by(as_client).count(name="m")),
    "state": lambda s: out(keyed(s).process(keep_client, state=dict, name="m")),
    "scan": lambda s: out(keyed(s).scan(int, lambda n, order: as_client(order), name="m")),
    "batch": lambda s: out(s.map(as_client).batch(3, "1s", name="m").map(str)),
    "coroutine": lambda s: out(s.map(as_client_slowly, name="m").map(str)),
}


def run_with_snapshots(to: Path, draw: Callable[[Stream], object], *types: type) -> None:
    job = sc.Job("job", checkpoints=sc.Checkpoints(to=to), types=types, restart=sc.Restart.none())
    records = [Client(1)] if draw is out else [Order(1)]
    draw(job.source(sc.items(records), name="m" if draw is out else "read"))
    run_job(job)


@pytest.mark.parametrize("kind", UNDECLARED)
def test_undeclared_type_is_found_before_a_snapshot_with_the_line_to_write(
    tmp_path: Path, kind: str
) -> None:
    with pytest.raises(JobFailed) as caught:
        run_with_snapshots(tmp_path, UNDECLARED[kind], Order)
    text = str(caught.value)
    assert "step 'm'" in text
    assert "Client" in text
    assert "codec" in text


def test_undeclared_data_class_is_told_with_job_types(tmp_path: Path) -> None:
    bill = dataclasses.make_dataclass("Bill", ["id"])

    def draw(orders: Stream) -> object:
        bills = orders.map(lambda order: bill(order.id), name="bill")
        return out(bills.rebalance().map(str, parallelism=2).rebalance())

    with pytest.raises(JobFailed, match=r"pass Job\(types=\[Bill\]\)"):
        run_with_snapshots(tmp_path, draw)
