"""q8, new users: who has signed up and opened an auction in the same ten seconds?

The auctions of a seller in a window are counted before they are joined: one row each is enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import streamcp as sc
from benchmarks.nexmark.model import (
    OUT_OF_ORDERNESS_MS,
    Auction,
    Event,
    Person,
    is_auction,
    is_person,
)
from benchmarks.nexmark.query import Query

SIZE = 10_000
WINDOWS = sc.Tumbling("10s")


class NewSeller(NamedTuple):
    person: int
    name: str
    start: int


def name_of(person: Person, sales: sc.WindowResult[int, int]) -> str:
    return person.name


def new_seller(joined: sc.WindowResult[int, str]) -> NewSeller:
    return NewSeller(joined.key, joined.value, joined.start)


def q8(events: sc.Stream[Event]) -> sc.Stream[NewSeller]:
    people = events.filter(is_person).key_by(lambda person: person.id)
    auctions = events.filter(is_auction).key_by(lambda auction: auction.seller)
    sellers = auctions.window(WINDOWS, name="sellers").count().key_by(lambda sales: sales.key)
    return people.window(WINDOWS, name="new-sellers").join(sellers, name_of).map(new_seller)


def by_hand(events: Iterable[Event]) -> Iterator[NewSeller]:
    names: defaultdict[int, dict[int, str]] = defaultdict(dict)  # by window, then by person
    sellers: defaultdict[int, set[int]] = defaultdict(set)
    close = 0
    for event in events:
        start = event.time - event.time % SIZE
        if type(event) is Person:
            names[start][event.id] = event.name
        elif type(event) is Auction:
            sellers[start].add(event.seller)
        if event.time >= close:
            close = start + SIZE + OUT_OF_ORDERNESS_MS
            for over in [one for one in names if one + SIZE + OUT_OF_ORDERNESS_MS <= event.time]:
                yield from matches(over, names.pop(over), sellers.pop(over, set()))
    for start in names:
        yield from matches(start, names[start], sellers[start])


def matches(start: int, names: dict[int, str], sellers: set[int]) -> Iterator[NewSeller]:
    return (NewSeller(one, name, start) for one, name in names.items() if one in sellers)


SQL = """
    SELECT DISTINCT person.id, person.name, person.time // 10000 * 10000 AS start
    FROM person JOIN auction
        ON person.id = auction.seller AND person.time // 10000 = auction.time // 10000
"""

Q8 = Query("q8", q8, by_hand, SQL, event_time=True)
