"""Q1, Q3, Q8 and Q12 as CheckMate has them; results carry the stamp of the event that caused them.

Unlike Nexmark's own: q1's factor is 0.82, q3 takes every category, q8 and q12 tell each result at
once and forget everything every ten seconds of processing time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias, TypeGuard

import streamcp as sc
from benchmarks.nexmark.model import Auction, Bid, Event, Person

Stamped: TypeAlias = tuple[int, Event]
"""The intended time of an event, and the event."""
Result: TypeAlias = tuple[int, int]
"""The intended time of the event that caused it, and a number: an id, a price or a count."""

FACTOR = 0.82
STATES = ("OR", "ID", "CA")
WINDOW = 10_000  # milliseconds


def is_person(stamped: Stamped) -> TypeGuard[tuple[int, Person]]:
    """Tell whether somebody has signed up."""
    return type(stamped[1]) is Person


def is_near(stamped: tuple[int, Person]) -> bool:
    """Tell whether somebody lives where q3 asks for."""
    return stamped[1].state in STATES


def is_auction(stamped: Stamped) -> TypeGuard[tuple[int, Auction]]:
    """Tell whether an auction was opened."""
    return type(stamped[1]) is Auction


def is_bid(stamped: Stamped) -> TypeGuard[tuple[int, Bid]]:
    """Tell whether a bid was made."""
    return type(stamped[1]) is Bid


# ---- q1


def converted(bid: tuple[int, Bid]) -> Result:
    return bid[0], round(bid[1].price * FACTOR)


def q1(events: sc.Stream[Stamped]) -> sc.Stream[Result]:
    """Currency conversion; nothing is exchanged."""
    return events.filter(is_bid).map(converted, name="converted")


# ---- q3


@dataclass
class Sides:
    """What has come of a key: ids of both sides."""

    people: list[int] = field(default_factory=list)
    auctions: list[int] = field(default_factory=list)


def on_person(person: tuple[int, Person], sides: Sides, ctx: sc.KeyContext[int]) -> list[Result]:
    sides.people.append(person[1].id)
    return [(person[0], auction) for auction in sides.auctions]


def on_auction(auction: tuple[int, Auction], sides: Sides, ctx: sc.KeyContext[int]) -> list[Result]:
    sides.auctions.append(auction[1].id)
    return [(auction[0], auction[1].id) for _ in sides.people]


def q3(events: sc.Stream[Stamped]) -> sc.Stream[Result]:
    """Who in three states sells what? The state grows without bound."""
    people = events.filter(is_person).filter(is_near).key_by(lambda person: person[1].id)
    auctions = events.filter(is_auction).key_by(lambda auction: auction[1].seller)
    return people.connect(auctions).process(on_person, on_auction, state=Sides, name="join")


# ---- q8


@dataclass
class NewSides(Sides):
    """The same in the window that ends so."""

    end: int = 0


def begin_anew(sides: NewSides, ctx: sc.KeyContext[int]) -> None:
    if ctx.timestamp >= sides.end:
        sides.people, sides.auctions = [], []
        sides.end = ctx.timestamp // WINDOW * WINDOW + WINDOW
        ctx.set_timer(sides.end)


def on_new_person(
    person: tuple[int, Person], sides: NewSides, ctx: sc.KeyContext[int]
) -> list[Result]:
    begin_anew(sides, ctx)
    return on_person(person, sides, ctx)


def on_new_auction(
    auction: tuple[int, Auction], sides: NewSides, ctx: sc.KeyContext[int]
) -> list[Result]:
    begin_anew(sides, ctx)
    return on_auction(auction, sides, ctx)


def forget(now: int, sides: NewSides, ctx: sc.KeyContext[int]) -> None:
    if now >= sides.end:
        ctx.clear_state()


def q8(events: sc.Stream[Stamped]) -> sc.Stream[Result]:
    """Who has signed up and sells something in the same ten seconds?"""
    people = events.filter(is_person).key_by(lambda person: person[1].id)
    auctions = events.filter(is_auction).key_by(lambda auction: auction[1].seller)
    return people.connect(auctions).process(
        on_new_person, on_new_auction, state=NewSides, on_timer=forget, name="join"
    )


# ---- q12


@dataclass
class Bids:
    """The bids of a bidder in the window that ends so."""

    end: int = 0
    bids: int = 0


def count(bid: tuple[int, Bid], window: Bids, ctx: sc.KeyContext[int]) -> list[Result]:
    if ctx.timestamp >= window.end:
        window.bids = 0
        window.end = ctx.timestamp // WINDOW * WINDOW + WINDOW
        ctx.set_timer(window.end)
    window.bids += 1
    return [(bid[0], window.bids)]


def forget_bids(now: int, window: Bids, ctx: sc.KeyContext[int]) -> None:
    if now >= window.end:
        ctx.clear_state()


def q12(events: sc.Stream[Stamped]) -> sc.Stream[Result]:
    """How many bids has a bidder made in these ten seconds?"""
    bids = events.filter(is_bid).key_by(lambda bid: bid[1].bidder)
    return bids.process(count, state=Bids, on_timer=forget_bids, name="count")
