"""q3, local items: who in Oregon, Idaho or California sells something of category 10, and what?

A join without windows: whoever comes first waits in the state, for good.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import streamcp as sc
from benchmarks.nexmark.model import Auction, Event, Person, is_auction, is_person
from benchmarks.nexmark.query import Query

STATES = ("OR", "ID", "CA")
CATEGORY = 10


class LocalItem(NamedTuple):
    name: str
    city: str
    state: str
    auction: int


@dataclass
class Seller:
    """Who sells, if known yet, and what he sold before."""

    person: Person | None = None
    auctions: list[int] = field(default_factory=list)


def is_near(person: Person) -> bool:
    return person.state in STATES


def is_chosen(auction: Auction) -> bool:
    return auction.category == CATEGORY


def on_person(person: Person, seller: Seller, ctx: sc.KeyContext[int]) -> list[LocalItem]:
    seller.person = person
    waiting, seller.auctions = seller.auctions, []
    return [item(person, auction) for auction in waiting]


def on_auction(auction: Auction, seller: Seller, ctx: sc.KeyContext[int]) -> list[LocalItem]:
    if seller.person is None:
        seller.auctions.append(auction.id)
        return []
    return [item(seller.person, auction.id)]


def item(person: Person, auction: int) -> LocalItem:
    return LocalItem(person.name, person.city, person.state, auction)


def q3(events: sc.Stream[Event]) -> sc.Stream[LocalItem]:
    people = events.filter(is_person).filter(is_near)
    auctions = events.filter(is_auction).filter(is_chosen)
    return (
        people.key_by(lambda person: person.id)
        .connect(auctions.key_by(lambda auction: auction.seller))
        .process(on_person, on_auction, state=Seller, name="sellers")
    )


def by_hand(events: Iterable[Event]) -> Iterator[LocalItem]:
    people: dict[int, Person] = {}
    waiting: defaultdict[int, list[int]] = defaultdict(list)
    for event in events:
        if type(event) is Person and event.state in STATES:
            people[event.id] = event
            for auction in waiting.pop(event.id, ()):
                yield item(event, auction)
        elif type(event) is Auction and event.category == CATEGORY:
            seller = people.get(event.seller)
            if seller is None:
                waiting[event.seller].append(event.id)
            else:
                yield item(seller, event.id)


SQL = """
    SELECT person.name, person.city, person.state, auction.id
    FROM auction JOIN person ON auction.seller = person.id
    WHERE auction.category = 10 AND person.state IN ('OR', 'ID', 'CA')
"""

Q3 = Query("q3", q3, by_hand, SQL)
