"""q8-running, CheckMate's variant of q8: who has signed up and opened which auction in the same ten
seconds of processing time? Told as soon as both are there; then everything is forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import streamcp as sc
from benchmarks.nexmark.model import Auction, Event, Person, is_auction, is_person
from benchmarks.nexmark.query import Clock, Query, wall_clock

SIZE = 10_000


class NewSale(NamedTuple):
    person: int
    name: str
    auction: int


@dataclass
class Seen:
    """What has come of a person in the window that ends so."""

    end: int = 0
    name: str | None = None
    auctions: list[int] = field(default_factory=list)


def begin_anew(seen: Seen, ctx: sc.KeyContext[int]) -> None:
    if ctx.timestamp >= seen.end:
        seen.name, seen.auctions = None, []
        seen.end = ctx.timestamp // SIZE * SIZE + SIZE
        ctx.set_timer(seen.end)


def on_person(person: Person, seen: Seen, ctx: sc.KeyContext[int]) -> list[NewSale]:
    begin_anew(seen, ctx)
    seen.name = person.name
    return [NewSale(person.id, person.name, auction) for auction in seen.auctions]


def on_auction(auction: Auction, seen: Seen, ctx: sc.KeyContext[int]) -> list[NewSale]:
    begin_anew(seen, ctx)
    seen.auctions.append(auction.id)
    return [] if seen.name is None else [NewSale(ctx.key, seen.name, auction.id)]


def forget(now: int, seen: Seen, ctx: sc.KeyContext[int]) -> None:
    if now >= seen.end:
        ctx.clear_state()


def q8_running(events: sc.Stream[Event]) -> sc.Stream[NewSale]:
    people = events.filter(is_person).key_by(lambda person: person.id)
    auctions = events.filter(is_auction).key_by(lambda auction: auction.seller)
    return people.connect(auctions).process(
        on_person, on_auction, state=Seen, on_timer=forget, name="sales"
    )


def by_clock(events: Iterable[Event], now: Clock) -> Iterator[NewSale]:
    names: dict[int, str] = {}
    auctions: defaultdict[int, list[int]] = defaultdict(list)
    end = 0
    for event in events:
        at = now(event)
        if at >= end:
            names.clear()
            auctions.clear()
            end = at // SIZE * SIZE + SIZE
        if type(event) is Person:
            names[event.id] = event.name
            for auction in auctions.get(event.id, ()):
                yield NewSale(event.id, event.name, auction)
        elif type(event) is Auction:
            auctions[event.seller].append(event.id)
            name = names.get(event.seller)
            if name is not None:
                yield NewSale(event.seller, name, event.id)


SQL = """
    SELECT person.id, person.name, auction.id
    FROM person JOIN auction
        ON person.id = auction.seller AND person.time // 10000 = auction.time // 10000
"""

Q8_RUNNING = Query(
    "q8-running", q8_running, partial(by_clock, now=wall_clock), SQL, by_clock=by_clock
)
