"""What happens at an auction house: people sign up, auctions are opened, bids are made.

Times are milliseconds since the epoch. Field by field the model of Apache Beam's and of
nexmark/nexmark (without a bid's channel and url, as in Beam), in Python's spelling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, TypeGuard

OUT_OF_ORDERNESS_MS: Final = 4_000
"""How much later than its time an event may come: that of nexmark/nexmark."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody has signed up."""

    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    time: int
    extra: str


@dataclass(frozen=True, slots=True)
class Auction:
    """Somebody sells something, until `expires`."""

    id: int
    item: str
    description: str
    initial_bid: int
    reserve: int
    time: int
    expires: int
    seller: int
    category: int
    extra: str


@dataclass(frozen=True, slots=True)
class Bid:
    """Somebody offers a price."""

    auction: int
    bidder: int
    price: int
    time: int
    extra: str


Event: TypeAlias = Person | Auction | Bid


def is_person(event: Event) -> TypeGuard[Person]:
    """Tell whether somebody has signed up."""
    return type(event) is Person


def is_auction(event: Event) -> TypeGuard[Auction]:
    """Tell whether an auction was opened."""
    return type(event) is Auction


def is_bid(event: Event) -> TypeGuard[Bid]:
    """Tell whether a bid was made."""
    return type(event) is Bid
