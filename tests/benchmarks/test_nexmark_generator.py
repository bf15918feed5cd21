"""The events of Nexmark: the mix, the sizes, the skew and the times that are prescribed."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.nexmark.generator import (
    FIRST_ID,
    HOT_AMONG,
    YET_TO_COME,
    Auctioneering,
    events,
    size,
)
from benchmarks.nexmark.model import Auction, Bid, Event, Person, is_auction, is_bid, is_person

MANY = events(50_000)


def ids(found: list[Event], kind: type[Person] | type[Auction]) -> list[int]:
    return [event.id for event in found if isinstance(event, kind)]


@given(count=st.integers(0, 300), seed=st.integers(0), group=st.integers(1, 20))
def test_same_seed_gives_the_same_events_and_fewer_are_their_beginning(
    count: int, seed: int, group: int
) -> None:
    how = Auctioneering(seed, out_of_order=group)
    assert events(count, how) == events(300, how)[:count]


def test_another_seed_gives_other_events() -> None:
    assert events(50, Auctioneering(1)) != events(50, Auctioneering(2))


@given(rounds=st.integers(0, 6), seed=st.integers(0))
def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids(
    rounds: int, seed: int
) -> None:
    found = events(50 * rounds, Auctioneering(seed))
    kinds = [type(event) for event in found]
    assert kinds == ([Person] + [Auction] * 3 + [Bid] * 46) * rounds
    assert ids(found, Person) == [FIRST_ID + n for n in range(rounds)]
    assert ids(found, Auction) == [FIRST_ID + n for n in range(3 * rounds)]


@pytest.mark.parametrize(("kind", "average"), [(Person, 200), (Auction, 500), (Bid, 100)])
def test_sizes_are_right_on_average(kind: type[Event], average: int) -> None:
    sizes = [size(event) for event in MANY if type(event) is kind]
    assert statistics.mean(sizes) == pytest.approx(average, rel=0.01)
    assert min(sizes) >= average * 0.75
    assert max(sizes) <= average * 1.25
    assert len({*sizes}) > 10


def hot_shares(found: list[Event]) -> tuple[float, float, float]:
    """The shares of bids in the hot auction and of the hot bidder, and of auctions of the hot
    seller, each hot at its own time."""
    hits: Counter[str] = Counter()
    people = auctions = 0
    for event in found:
        if is_person(event):
            people += 1
            continue
        hot_person = FIRST_ID + (people - 1) // HOT_AMONG * HOT_AMONG
        if is_auction(event):
            auctions += 1
            hits["seller"] += event.seller == hot_person
        elif is_bid(event):
            hits["auction"] += event.auction == FIRST_ID + (auctions - 1) // HOT_AMONG * HOT_AMONG
            hits["bidder"] += event.bidder == hot_person + 1
    bids = len(found) - people - auctions
    return hits["auction"] / bids, hits["bidder"] / bids, hits["seller"] / auctions


def test_hot_keys_have_their_shares() -> None:
    assert hot_shares(MANY) == pytest.approx((1 / 2, 3 / 4, 3 / 4), abs=0.02)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_share_of_hot_keys_can_be_chosen(share: float) -> None:
    how = Auctioneering(hot_auctions=share, hot_bidders=share, hot_sellers=share)
    assert hot_shares(events(50_000, how)) == pytest.approx((share, share, share), abs=0.025)


def test_every_other_key_is_of_the_newest_or_yet_to_come() -> None:
    how = Auctioneering(hot_auctions=0, hot_bidders=0, active_people=50)
    people = auctions = ahead = 0
    for event in events(20_000, how):
        people += is_person(event)
        auctions += is_auction(event)
        if is_bid(event):
            newest_person, newest_auction = FIRST_ID + people - 1, FIRST_ID + auctions - 1
            assert newest_auction - 100 <= event.auction <= newest_auction + YET_TO_COME
            assert newest_person - 50 < event.bidder <= newest_person + YET_TO_COME
            ahead += event.auction > newest_auction
    assert ahead > 0


def test_times_go_on_by_the_rate() -> None:
    how = Auctioneering(rate=1000, begins=5_000)
    assert [event.time for event in events(100, how)] == [5_000 + n for n in range(100)]


@given(seed=st.integers(0), group=st.integers(2, 60))
def test_events_out_of_order_are_the_same_ones_shuffled_in_their_groups(
    seed: int, group: int
) -> None:
    in_order = events(120, Auctioneering(seed))
    shuffled = events(120, Auctioneering(seed, out_of_order=group))
    for start in range(0, 120 - group + 1, group):
        part = slice(start, start + group)
        assert Counter(shuffled[part]) == Counter(in_order[part])


def test_groups_are_really_shuffled() -> None:
    times = [event.time for event in events(1000, Auctioneering(rate=1000, out_of_order=100))]
    assert times != sorted(times)


def test_auctions_last_until_the_next_hundred_on_average() -> None:
    lengths = [event.expires - event.time for event in MANY if is_auction(event)]
    assert min(lengths) > 0
    assert statistics.mean(lengths) == pytest.approx(100 * 50 / 3 / 10, rel=0.05)


def test_prices_are_even_by_their_logarithm() -> None:
    prices = [event.price for event in MANY if is_bid(event)]
    assert 100 <= min(prices) <= max(prices) <= 10**8
    shares = [sum(price < 100 * 10**power for price in prices) / len(prices) for power in range(7)]
    assert shares == pytest.approx([power / 6 for power in range(7)], abs=0.01)
