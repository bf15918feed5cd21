"""The event log."""

from __future__ import annotations

import dataclasses
import json
import logging

import pytest

from streamcp.observability import events
from streamcp.observability.events import Event, EventLog

FINISHED = events.JobFinished(3, "orders", 1)
ESCALATED = events.CheckpointEscalated(5, 7, 0.1, "alignment timeout")


def fail(event: Event) -> None:
    raise RuntimeError("listener broken")


def test_log_keeps_the_newest_events() -> None:
    log = EventLog(capacity=2)
    for moment in range(5):
        log.record(Event(moment))
    assert log.events() == (Event(3), Event(4))
    assert log.recorded == 5
    assert repr(log) == "EventLog(kept=2, recorded=5)"


def test_listener_is_called_at_once_until_it_unsubscribes() -> None:
    log, heard = EventLog(), list[Event]()
    log.record(FINISHED)
    unsubscribe = log.subscribe(heard.append)
    log.record(ESCALATED)
    assert heard == [ESCALATED]
    unsubscribe()
    unsubscribe()
    log.record(FINISHED)
    assert heard == [ESCALATED]


def test_unsubscribing_leaves_the_other_subscription_of_the_same_listener() -> None:
    log, heard = EventLog(), list[Event]()
    unsubscribe = log.subscribe(heard.append)
    log.subscribe(heard.append)
    unsubscribe()
    unsubscribe()
    log.record(FINISHED)
    assert heard == [FINISHED]


def test_error_of_a_listener_is_logged_and_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, heard = EventLog(), list[Event]()
    log.subscribe(fail)
    log.subscribe(heard.append)
    with caplog.at_level(logging.ERROR):
        log.record(FINISHED)
    assert heard == [FINISHED]
    assert log.events() == (FINISHED,)
    assert "a listener failed on JobFinished" in caplog.text
    assert "listener broken" in caplog.text


def test_listener_may_unsubscribe_while_it_is_called() -> None:
    log, heard = EventLog(), list[Event]()

    def once(event: Event) -> None:
        heard.append(event)
        unsubscribe()

    unsubscribe = log.subscribe(once)
    log.subscribe(heard.append)
    log.record(FINISHED)
    log.record(ESCALATED)
    assert heard == [FINISHED, FINISHED, ESCALATED]


def test_event_as_plain_values_names_its_kind() -> None:
    event = events.CheckpointCompleted(9, 7, {"alignment": 0.1})
    assert json.loads(json.dumps(event.as_dict())) == {
        "event": "CheckpointCompleted",
        "at_ms": 9,
        "checkpoint_id": 7,
        "statistics": {"alignment": 0.1},
    }


@pytest.mark.parametrize("event", [FINISHED, ESCALATED])
def test_event_cannot_be_changed(event: Event) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.at_ms = 0  # type: ignore[misc]
