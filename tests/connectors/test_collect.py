from __future__ import annotations

from streamcp.connectors.collect import Collect, collect, discard
from streamcp.operators.sinks import Sink


async def test_records_are_kept_in_order() -> None:
    sink = collect()

    await sink.write([1, 2])
    await sink.write([3])

    assert sink.records == [1, 2, 3]


async def test_each_sink_has_a_list_of_its_own() -> None:
    first, second = collect(), collect()

    await first.write([1])

    assert second.records == []


async def test_given_sequence_is_not_kept() -> None:
    sink: Collect[int] = Collect()
    batch = [1, 2]

    await sink.write(batch)
    batch.clear()

    assert sink.records == [1, 2]


async def test_discard_keeps_the_sink_contract() -> None:
    sink: Sink[object] = discard()

    assert await sink.write([1, 2]) is None  # type: ignore[func-returns-value]
