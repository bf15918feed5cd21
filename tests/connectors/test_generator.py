from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcp.connectors.generator import generator
from streamcp.errors import SettingsError
from streamcp.operators.sources import Source


class ManualTime:
    """A clock that is moved by sleeping, and by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def paced(source: Source[Any], time: ManualTime, position: int = 0) -> AsyncIterator[Any]:
    kwargs = {**source.kwargs, "clock": time, "sleep": time.sleep}
    return source.fn(position, **kwargs)


async def records(source: Source[Any], position: int = 0) -> list[Any]:
    return [record async for batch, _ in source.open(position) for record in batch]


async def test_count_records_are_made_of_their_index() -> None:
    batches = [batch async for batch in generator(lambda i: i * i, count=600).open(0)]

    assert [value for values, _ in batches for value in values] == [i * i for i in range(600)]
    assert [position for _, position in batches] == [256, 512, 600]


async def test_without_count_it_does_not_end() -> None:
    source = generator(lambda i: i)

    values, position = await anext(source.open(10**12))

    assert values[0] == 10**12
    assert position == 10**12 + len(values)


@settings(max_examples=30)
@given(position=st.integers(0, 1500), seed=st.integers(0, 5), skew=st.floats(0, 2))
async def test_opened_at_any_position_gives_the_same_tail(
    position: int, seed: int, skew: float
) -> None:
    source = generator(lambda i, key: (i, key), keys=50, skew=skew, seed=seed, count=1500)

    assert await records(source, position) == (await records(source))[position:]


async def test_paced_opened_at_a_position_gives_the_same_tail() -> None:
    source = generator(lambda i, key: (i, key), keys=50, count=900, rate=10_000)
    whole = [r async for batch, _ in paced(source, ManualTime()) for r in batch]
    tail = [r async for batch, _ in paced(source, ManualTime(), 700) for r in batch]

    assert tail == whole[700:]


async def test_different_seeds_draw_different_keys() -> None:
    drawn = [
        tuple(await records(generator(lambda i, k: k, keys=10_000, seed=seed, count=20)))
        for seed in range(20)
    ]

    assert len(set(drawn)) == 20


async def test_skew_follows_zipf() -> None:
    seen = Counter(await records(generator(lambda i, k: k, keys=10, skew=1.0, count=20_000)))
    total = sum(1 / (key + 1) for key in range(10))

    for key in range(10):
        assert seen[key] / 20_000 == pytest.approx(1 / (key + 1) / total, abs=0.02)


async def test_no_skew_draws_every_key_alike() -> None:
    seen = Counter(await records(generator(lambda i, k: k, keys=4, count=20_000)))

    assert sorted(seen) == [0, 1, 2, 3]
    assert max(seen.values()) < 1.1 * min(seen.values())


async def test_rate_emits_what_is_due_per_tick() -> None:
    time = ManualTime()
    reading = paced(generator(lambda i: i, rate=10_000), time)

    assert await anext(reading) == ([0], 1)
    values, position = await anext(reading)

    assert len(time.slept) == 1
    assert values == list(range(1, position))
    assert position == pytest.approx(11, abs=1)


async def test_slow_rate_sleeps_until_the_next_record_is_due() -> None:
    time = ManualTime()
    reading = paced(generator(lambda i: i, rate=0.5), time)

    assert [await anext(reading) for _ in range(3)] == [([0], 1), ([1], 2), ([2], 3)]
    assert time.slept == pytest.approx([2.0, 2.0])


async def test_records_that_waited_for_a_slow_pipeline_are_all_emitted() -> None:
    time = ManualTime()
    reading = paced(generator(lambda i: i, rate=1000, count=2000), time)
    await anext(reading)

    time.now += 1.0
    late = 0
    while not time.slept:
        values, _ = await anext(reading)
        late += len(values) if not time.slept else 0

    assert late == pytest.approx(1000, abs=1)


async def test_rate_holds_on_average() -> None:
    time = ManualTime()
    emitted = [len(batch) async for batch, _ in paced(generator(str, rate=3333, count=9999), time)]

    assert sum(emitted) == 9999
    assert time.now - 100.0 == pytest.approx(3.0, abs=0.01)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"count": -1}, "count=-1"),
        ({"rate": 0}, "rate=0"),
        ({"rate": float("nan")}, "rate=nan"),
        ({"keys": 0}, "keys=0"),
        ({"keys": 3, "skew": -1.0}, "skew=-1.0"),
        ({"skew": 1.0}, "add keys="),
    ],
)
def test_wrong_setting_is_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        generator(str, **wrong)


async def test_records_do_not_depend_on_how_they_are_batched() -> None:
    source = generator(lambda i, key: (i, key), keys=5, count=300)
    make = source.kwargs["make"]

    assert [make(i, i + 1)[0] for i in range(300)] == await records(source)
