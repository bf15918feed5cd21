from __future__ import annotations

from streamcp.connectors.collect import Collect, collect, discard
from streamcp.operators.sinks import PlainSink


def test_records_are_kept_in_order() -> None:
    sink = collect()

    sink.write([1, 2])
    sink.write([3])

    assert sink.records == [1, 2, 3]


def test_each_sink_has_a_list_of_its_own() -> None:
    first, second = collect(), collect()

    first.write([1])

    assert second.records == []


def test_given_sequence_is_not_kept() -> None:
    sink: Collect[int] = Collect()
    batch = [1, 2]

    sink.write(batch)
    batch.clear()

    assert sink.records == [1, 2]


def test_discard_keeps_the_sink_contract() -> None:
    sink: PlainSink[object] = discard()

    sink.write([1, 2])
