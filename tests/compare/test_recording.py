"""The stand-in of a sink takes any record, writes equal ones alike, and tells what it does."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.compare.recording import RecordingSink, json_value, recording
from streamcp.operators.sinks import Transaction


class Watched:
    def __init__(self) -> None:
        self.told: list[str] = []

    def written(self) -> None:
        self.told.append("written")

    def committed(self) -> None:
        self.told.append("committed")


@dataclasses.dataclass
class Tags:
    names: set[str]


class Pair(NamedTuple):
    left: int
    right: int


class Plain:
    def __init__(self, value: object) -> None:
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class Told:
    def __repr__(self) -> str:
        return "told"


async def lines_of(sink: RecordingSink, folder: Path, *writes: list[Any]) -> list[bytes]:
    async with sink:
        transaction = Transaction("t")
        for records in writes:
            await sink.write(records, transaction)
        await sink.commit(transaction, await sink.prepare(transaction))
    return written_lines(folder)


def written_lines(folder: Path) -> list[bytes]:
    return [line for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines()]


async def test_records_that_are_no_json_are_described(tmp_path: Path) -> None:
    sink = recording(tmp_path, 0.0, Watched())()

    lines = await lines_of(sink, tmp_path, [{"a": 1}, Tags({"b", "a"}), Pair(1, 2)], [Pair(1, 2)])

    assert lines == [
        b'{"a":1}',
        b'["Tags",[["names",["set",["a","b"]]]]]',
        b'{"left":1,"right":2}',
        b'{"left":1,"right":2}',
    ]


@pytest.mark.parametrize(
    ("record", "described"),
    [
        (Plain(1), ["Plain", [["value", 1]]]),
        (Slotted((1, None)), ["Slotted", [["value", ["tuple", [1, None]]]]]),
        (Told(), ["Told", "told"]),
        (2**70, str(2**70)),
        (b"ab", ["bytes", "b'ab'"]),
        ({(1, 2): True}, ["dict", [[["tuple", [1, 2]], True]]]),
        ({"of": {2**70, 1}}, ["dict", [["of", ["set", [str(2**70), 1]]]]]),
    ],
)
def test_record_is_described_by_what_it_holds(record: object, described: object) -> None:
    assert json_value(record) == described


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.builds(Plain, inner),
    max_leaves=8,
)


@given(VALUES)
def test_every_record_becomes_a_line(record: object) -> None:
    orjson.dumps(json_value(record))


async def test_first_commit_is_told_only_of_records_written_in_this_process(
    tmp_path: Path,
) -> None:
    before, after = Watched(), Watched()
    old = recording(tmp_path, 0.0, before)()
    transaction = Transaction("t")
    async with old:
        await old.write([1], transaction)
        token = await old.prepare(transaction)
    async with recording(tmp_path, 0.0, after)() as restored:
        await restored.commit(transaction, token)

    assert before.told == ["written"]
    assert after.told == []


async def test_own_commit_and_write_are_told(tmp_path: Path) -> None:
    watched = Watched()

    await lines_of(recording(tmp_path, 0.0, watched)(), tmp_path, [1], [2])

    assert watched.told == ["written", "written", "committed"]


async def test_records_take_the_time_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("streamcp.compare.recording.asyncio.sleep", sleep)

    await lines_of(recording(tmp_path, 0.002, Watched())(), tmp_path, [1], [2], [3], [4, 5, 6])

    assert slept == pytest.approx([0.006, 0.006])


async def test_aborted_transaction_leaves_nothing(tmp_path: Path) -> None:
    async with recording(tmp_path, 0.0, Watched())() as sink:
        await sink.write(["x" * 100_000], Transaction("job.1"))
        await sink.abort(Transaction("job.1"))
        await sink.write(["x" * 100_000], Transaction("job.2"))
        await sink.prepare(Transaction("job.2"))
        await sink.abort_others("job.", ())

    assert os.listdir(tmp_path) == []
