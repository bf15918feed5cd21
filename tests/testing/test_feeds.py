from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as st

from streamcp.connectors.items import items
from streamcp.operators.steps import SourceStep
from streamcp.operators.watermarks import Watermarks
from streamcp.testing.feeds import Feeds
from streamcp.testing.standing import StandingLoop

SOURCES = ("a", "b", "timed")
Fed = list[tuple[str, int]]


class Readers:
    """Read the sources that feeds stand in for, each from its position on."""

    def __init__(self, feeds: Feeds, positions: dict[str, int]) -> None:
        self.loop = StandingLoop(start_ms=0)
        self.loop.on_rest = feeds.release
        self.read: list[tuple[str, Sequence[int]]] = []
        self.steps = {name: feeds.stand_in(name, _step(name), ()) for name in SOURCES}
        for name, position in positions.items():
            self.loop.create_task(self._read(name, position))

    def close(self) -> None:
        self.loop.end()

    async def _read(self, name: str, position: int) -> None:
        async for records, _ in self.steps[name].source.open(position):
            self.read.append((name, records))

    def records(self) -> Fed:
        """All that can be read now, in the order in which it comes."""
        self.loop.advance(0)
        return [(name, record) for name, records in self.read for record in records]


def _step(name: str) -> SourceStep:
    timed = Watermarks(int) if name == "timed" else None
    return SourceStep(items([]), timed)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(0, 3)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_records_come_in_the_order_of_feeding_also_those_that_are_read_again(
    parts: list[tuple[str, int]], rnd: random.Random
) -> None:
    feeds, fed = Feeds(), Fed()
    with closing(Readers(feeds, dict.fromkeys(SOURCES, 0))) as first:
        for name, count in parts:
            records = [len(fed) + number for number in range(count)]
            feeds.add(name, None, records)
            fed += [(name, record) for record in records]
            if rnd.random() < 0.5:
                assert first.records() == fed
        assert first.records() == fed
    counts = {name: sum(source == name for source, _ in fed) for name in SOURCES}
    positions = {name: rnd.randint(0, count) for name, count in counts.items()}
    with closing(Readers(feeds, positions)) as again:
        assert again.records() == _behind(fed, positions)


def _behind(fed: Fed, positions: dict[str, int]) -> Fed:
    left = dict(positions)
    rest = Fed()
    for name, record in fed:
        left[name] -= 1
        if left[name] < 0:
            rest.append((name, record))
    return rest


def test_records_with_event_time_come_one_by_one() -> None:
    feeds = Feeds()
    with closing(Readers(feeds, dict.fromkeys(SOURCES, 0))) as readers:
        feeds.add("a", None, [1, 2])
        feeds.add("timed", None, [3, 4])
        readers.records()
        assert readers.read == [("a", [1, 2]), ("timed", [3]), ("timed", [4])]
