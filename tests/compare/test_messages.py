"""Orders and messages survive the way through a pipe."""

from __future__ import annotations

import pytest

from streamcp.compare.messages import (
    Checkpoint,
    Ended,
    Failed,
    FirstCommit,
    FirstOutput,
    Message,
    Running,
    RunOrder,
    Sample,
    from_line,
    to_line,
)


def test_order_is_read_as_it_was_written() -> None:
    order = RunOrder(
        folder="/a b",
        mode="adaptive",
        every="1s",
        seconds=2.5,
        records=7,
        limits={"rows": 3, "parts['a']": 4},
        channel_capacity=9,
        sink_delay=0.01,
    )

    assert RunOrder.from_line(order.to_line()) == order
    assert order.to_line().count(b"\n") == 1


@pytest.mark.parametrize(
    "message",
    [
        Running(None, 0.5, 0),
        Running(3, 0.5, 12),
        Sample(0.25, 100, 90, 10),
        Checkpoint(1.0, {"checkpoint_id": 1, "outcome": "completed"}),
        FirstOutput(0.1),
        FirstCommit(0.2),
        Ended(10.0, {"rows": 100}),
        Failed("line one\nline two"),
    ],
)
def test_message_is_read_as_it_was_written(message: Message) -> None:
    line = to_line(message)

    assert from_line(line) == message
    assert line.count(b"\n") == 1
