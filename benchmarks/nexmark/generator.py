"""Made-up events with the mix, the sizes and the skew of Nexmark; same seed, same bytes.

The facts are those of Apache Beam's generator (sdks/java/testing/nexmark, `GeneratorConfig`,
`NexmarkConfiguration` and the generators of the model, read in November 2026), which
nexmark/nexmark uses too:

- of 50 events the first is a person, three are auctions, 46 are bids; ids count from 1000 on,
  the five categories from 10;
- on average a person takes 200 bytes, an auction 500, a bid 100: a text of random letters fills
  up what is missing, give or take a fifth; a number counts as 8 bytes, a letter as one;
- half of the bids go to the hot auction, the first of the newest hundred; three quarters come from
  the hot bidder, the second of the newest hundred people; three quarters of the auctions are of
  the hot seller, the first of them. So a key is hot for a while, and then another one is;
- the others are drawn evenly from the newest hundred auctions and thousand people, and from ten
  that are yet to come: some bids are made before their auction is opened;
- prices are 100 to 10^8, evenly by their logarithm;
- event time passes by 1/rate per event. To put events out of order, whole groups of
  `out_of_order` events are shuffled.

Beam gives a hot ratio r, by which 1 - 1/r of the draws are hot; here it is the share itself, as in
CheckMate's experiments (0, 0.1, 0.2, 0.3). The draws are ours: the events are like Beam's, not
equal to them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from benchmarks.nexmark.model import Auction, Bid, Event, Person

PEOPLE: Final = 1
AUCTIONS: Final = 3
BIDS: Final = 46
ROUND: Final = PEOPLE + AUCTIONS + BIDS  # events after which the mix begins again

FIRST_ID: Final = 1000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
HOT_AMONG: Final = 100  # one in so many is hot
YET_TO_COME: Final = 10
NUMBER: Final = 8  # bytes

PERSON_BYTES: Final = 200
AUCTION_BYTES: Final = 500
BID_BYTES: Final = 100

_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Bend", "Boise", "Cheyenne", "Kent", "Phoenix", "Portland", "Redmond", "Seattle")
_FIRST_NAMES = ("Ada", "Bela", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana", "Ines", "Jon")
_LAST_NAMES = ("Abel", "Baker", "Cruz", "Diaz", "Ekman", "Fuchs", "Gupta", "Haas", "Ito")
_LETTER_OF = bytes(ord("a") + byte % 26 for byte in range(256))


@dataclass(frozen=True, slots=True)
class Auctioneering:
    """What is drawn how often.

    `hot_auctions`, `hot_bidders` and `hot_sellers` are shares from 0 to 1; `rate` is in events per
    second of event time; events are out of order within groups of `out_of_order`. Without `bids`
    they are left out, for queries that do not look at them: making them takes most of the time."""

    seed: int = 0
    rate: int = 10_000
    begins: int = 1_700_000_000_000
    hot_auctions: float = 1 / 2
    hot_bidders: float = 3 / 4
    hot_sellers: float = 3 / 4
    active_people: int = 1000
    open_auctions: int = 100
    out_of_order: int = 1
    bids: bool = True


def events(count: int, how: Auctioneering = Auctioneering()) -> list[Event]:
    """Make the first `count` events; more of them begin with the same ones, group by group."""
    return list(islice(_shuffled(how), count))


def _shuffled(how: Auctioneering) -> Iterator[Event]:
    made = _Generator(how).events()
    if how.out_of_order == 1:
        yield from made
    order = random.Random(f"order of {how.seed}")
    while True:
        group = list(islice(made, how.out_of_order))
        order.shuffle(group)
        yield from group


class _Generator:
    """Makes the events in the order of their times."""

    def __init__(self, how: Auctioneering) -> None:
        self._how = how
        self._random = random.Random(how.seed)
        self._people = 0  # made so far
        self._auctions = 0

    def events(self) -> Iterator[Event]:
        bids = BIDS if self._how.bids else 0
        kinds = (self._person,) * PEOPLE + (self._auction,) * AUCTIONS + (self._bid,) * bids
        begins, rate = self._how.begins, self._how.rate
        number = 0
        while True:
            for make in kinds:
                yield make(begins + number * 1000 // rate)
                number += 1
            number += BIDS - bids

    def _person(self, time: int) -> Person:
        draw = self._random
        name = f"{draw.choice(_FIRST_NAMES)} {draw.choice(_LAST_NAMES)}"
        email = f"{self._letters(7)}@{self._letters(5)}.com"
        card = " ".join(f"{draw.randrange(10_000):04}" for _ in range(4))
        city, state = draw.choice(_CITIES), draw.choice(_STATES)
        used = 2 * NUMBER + len(name) + len(email) + len(card) + len(city) + len(state)
        person = FIRST_ID + self._people
        self._people += 1
        return Person(
            person, name, email, card, city, state, time, self._filling(PERSON_BYTES - used)
        )

    def _auction(self, time: int) -> Auction:
        item, description = self._text(20), self._text(100)
        initial_bid = self._price()
        used = 7 * NUMBER + len(item) + len(description)
        auction = FIRST_ID + self._auctions
        self._auctions += 1
        return Auction(
            auction,
            item,
            description,
            initial_bid,
            initial_bid + self._price(),
            time,
            time + self._length(),
            self._hot_person(self._how.hot_sellers, 0),
            FIRST_CATEGORY + self._random.randrange(CATEGORIES),
            self._filling(AUCTION_BYTES - used),
        )

    def _bid(self, time: int) -> Bid:
        return Bid(
            self._hot_auction(),
            self._hot_person(self._how.hot_bidders, 1),
            self._price(),
            time,
            self._filling(BID_BYTES - 4 * NUMBER),
        )

    def _hot_auction(self) -> int:
        newest = self._auctions - 1
        if self._random.random() < self._how.hot_auctions:
            return FIRST_ID + newest // HOT_AMONG * HOT_AMONG
        oldest = max(newest - self._how.open_auctions, 0)
        return FIRST_ID + self._random.randint(oldest, newest + YET_TO_COME)

    def _hot_person(self, share: float, place: int) -> int:
        newest = self._people - 1
        if self._random.random() < share:
            return FIRST_ID + newest // HOT_AMONG * HOT_AMONG + place
        oldest = max(newest - self._how.active_people + 1, 0)
        return FIRST_ID + self._random.randint(oldest, newest + YET_TO_COME)

    def _price(self) -> int:
        return round(100 * 10 ** (6 * self._random.random()))

    def _length(self) -> int:
        """Milliseconds that an auction lasts, on average until the next hundred were opened."""
        until_then = self._how.open_auctions * ROUND * 1000 // (AUCTIONS * self._how.rate)
        return self._random.randint(1, max(2 * until_then, 1))

    def _text(self, longest: int) -> str:
        return self._letters(self._random.randrange(3, longest))

    def _filling(self, average: int) -> str:
        spread = round(average / 5)
        return self._letters(average + self._random.randint(-spread, spread))

    def _letters(self, count: int) -> str:
        return self._random.randbytes(count).translate(_LETTER_OF).decode("ascii")


def size(event: Event) -> int:
    """How many bytes an event is said to take: 8 per number, one per letter."""
    values = (getattr(event, name) for name in event.__slots__)
    return sum(len(value) if isinstance(value, str) else NUMBER for value in values)
