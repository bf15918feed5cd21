"""When a loop is over: its outer inputs have ended, and everyone in it is empty (P19)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from streamcp.runtime.iteration import Iteration


@dataclass
class Member:
    outer_inputs_ended: bool = True
    is_empty: bool = True
    finished: bool = False
    ends: list[str] = field(default_factory=list)

    def end_back_edges(self) -> None:
        self.ends.append("end")


def loop_of(*members: Member) -> Iteration:
    iteration = Iteration()
    for member in members:
        iteration.join(member)
    return iteration


def test_loop_ends_once_and_for_every_member_in_one_step() -> None:
    members = [Member(), Member()]
    iteration = loop_of(*members)
    assert not iteration.ended
    iteration.look()
    iteration.look()
    assert iteration.ended
    assert [member.ends for member in members] == [["end"], ["end"]]


@pytest.mark.parametrize("not_yet", ["outer_inputs_ended", "is_empty"])
def test_loop_goes_on_while_a_member_may_still_send_records_round(not_yet: str) -> None:
    waiting = Member()
    setattr(waiting, not_yet, False)
    iteration = loop_of(Member(), waiting)
    iteration.look()
    assert not iteration.ended
    setattr(waiting, not_yet, True)
    iteration.look()
    assert iteration.ended


def test_loop_of_which_a_member_was_restored_as_finished_had_ended_before() -> None:
    unfinished = Member(outer_inputs_ended=False)
    iteration = loop_of(Member(outer_inputs_ended=False, finished=True), unfinished)
    iteration.look()
    assert iteration.ended
    assert unfinished.ends == ["end"]
