"""A child is told its order, heard, and never outlives its parent's interest."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from streamcp.clock import SystemClock
from streamcp.compare.messages import Ended, FirstOutput, Message, RunOrder
from streamcp.compare.process import Child, end_of_log, start_child

SPEAKS = """
import sys
from streamcp.compare.messages import Ended, FirstOutput, RunOrder, to_line
order = RunOrder.from_line(sys.stdin.buffer.readline())
out = sys.stdout.buffer
out.write(to_line(FirstOutput(1.0)) + to_line(Ended(2.0, {order.mode: 3})))
out.write(b"broken of")
print("printed", file=sys.stderr)
"""
HANGS = """
import sys
from streamcp.compare.messages import FirstOutput, to_line
sys.stdout.buffer.write(to_line(FirstOutput(1.0)))
sys.stdout.buffer.flush()
sys.stdin.buffer.read()
"""


def command(script: str) -> list[str]:
    return [sys.executable, "-c", script]


async def heard(child: Child, seconds: float) -> list[Message]:
    until = SystemClock().monotonic() + seconds
    return [message async for _, message in child.messages(until)]


async def test_messages_are_heard_until_the_child_ends(tmp_path: Path) -> None:
    order = RunOrder(folder=str(tmp_path), mode="adaptive")

    async with start_child(command(SPEAKS), order, SystemClock()) as child:
        messages = await heard(child, 30)

    assert messages == [FirstOutput(1.0), Ended(2.0, {"adaptive": 3})]
    assert await end_of_log(tmp_path) == "printed"


async def test_child_that_says_nothing_is_given_up_in_time(tmp_path: Path) -> None:
    order = RunOrder(folder=str(tmp_path), mode="aligned")

    async with start_child(command(HANGS), order, SystemClock()) as child:
        with pytest.raises(TimeoutError):
            await heard(child, 0.0)


async def test_killed_child_is_gone_and_is_no_longer_heard(tmp_path: Path) -> None:
    order = RunOrder(folder=str(tmp_path), mode="aligned")

    async with asyncio.timeout(30), start_child(command(HANGS), order, SystemClock()) as child:
        messages = child.messages(SystemClock().monotonic() + 30)
        first = await anext(messages)
        await child.kill()
        rest = [message async for message in messages]

    assert first[1] == FirstOutput(1.0)
    assert rest == []


async def test_only_the_end_of_a_long_log_is_given(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"line {number}\n" for number in range(100)))

    assert (await end_of_log(tmp_path)).splitlines()[0] == "line 80"
