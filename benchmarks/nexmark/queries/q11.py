"""q11, user sessions: how many bids did each bidder make without a pause of ten seconds?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import streamcp as sc
from benchmarks.nexmark.model import OUT_OF_ORDERNESS_MS, Bid, Event, is_bid
from benchmarks.nexmark.query import Query

GAP = 10_000


class Session(NamedTuple):
    bidder: int
    bids: int
    start: int
    end: int


def session(window: sc.WindowResult[int, int]) -> Session:
    return Session(window.key, window.value, window.start, window.end)


def q11(events: sc.Stream[Event]) -> sc.Stream[Session]:
    bids = events.filter(is_bid).key_by(lambda bid: bid.bidder)
    return bids.window(sc.Session("10s"), name="sessions").count().map(session)


def by_hand(events: Iterable[Event]) -> Iterator[Session]:
    """Start, end and bids of each open session, in order; most bidders have one."""
    by_bidder: dict[int, list[list[int]]] = {}
    look = 0
    for event in events:
        if type(event) is not Bid:
            continue
        time = event.time
        sessions = by_bidder.setdefault(event.bidder, [])
        if sessions and sessions[-1][0] <= time < sessions[-1][1]:
            newest = sessions[-1]
            if time + GAP > newest[1]:
                newest[1] = time + GAP
            newest[2] += 1
        else:
            add(sessions, time)
        if time > look:  # once in a second of event time
            look = time + 1000
            yield from take_closed(by_bidder, time - OUT_OF_ORDERNESS_MS)
    yield from take_closed(by_bidder, None)


def add(sessions: list[list[int]], time: int) -> None:
    """Add a bid, and join the sessions between which it lies."""
    start, end, bids = time, time + GAP, 1
    for other in [one for one in sessions if one[0] < end and time < one[1]]:
        start, end, bids = min(start, other[0]), max(end, other[1]), bids + other[2]
        sessions.remove(other)
    sessions.append([start, end, bids])
    sessions.sort()


def take_closed(by_bidder: dict[int, list[list[int]]], until: int | None) -> Iterator[Session]:
    for bidder, sessions in [*by_bidder.items()]:
        over = [one for one in sessions if until is None or one[1] <= until]
        for one in over:
            sessions.remove(one)
            yield Session(bidder, one[2], one[0], one[1])
        if not sessions:
            del by_bidder[bidder]


SQL = """
    WITH begun AS (
        SELECT bidder, time,
            coalesce(time - lag(time) OVER earlier >= 10000, true)::INT AS is_first
        FROM bid WINDOW earlier AS (PARTITION BY bidder ORDER BY time)
    ), numbered AS (
        SELECT bidder, time,
            sum(is_first) OVER (
                PARTITION BY bidder ORDER BY time, is_first DESC ROWS UNBOUNDED PRECEDING
            ) AS session
        FROM begun
    )
    SELECT bidder, count(*), min(time), max(time) + 10000
    FROM numbered GROUP BY bidder, session
"""

Q11 = Query("q11", q11, by_hand, SQL, event_time=True)
