"""Who keeps together: nobody gets too far ahead, nobody waits for those that do not come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamcp.elements import MIN_TIMESTAMP
from streamcp.runtime.drift import DriftGroup, DriftMember


class Members:
    """A group whose members note that they were woken."""

    def __init__(self, *drifts: int) -> None:
        self.woken: list[int] = []
        self.group = DriftGroup()
        self.all = [self._join(number, drift) for number, drift in enumerate(drifts)]

    def _join(self, number: int, drift: int) -> DriftMember:
        return self.group.join(drift, lambda: self.woken.append(number))


def test_whoever_is_further_ahead_than_the_drift_waits_until_the_slowest_has_caught_up() -> None:
    members = Members(10, 10)
    fast, slow = members.all
    slow.advance(100)
    fast.advance(110)
    assert not fast.must_wait
    fast.advance(111)
    assert fast.must_wait
    assert not slow.must_wait
    slow.advance(101)
    assert members.woken == [0]
    assert not fast.must_wait


def test_nobody_goes_ahead_of_one_that_has_not_begun() -> None:
    fast, new = Members(10, 10).all
    fast.advance(5)
    assert new.watermark == MIN_TIMESTAMP
    assert fast.must_wait


def test_idle_and_ended_ones_are_not_waited_for() -> None:
    members = Members(10, 10, 10)
    fast, idle, ended = members.all
    fast.advance(100)
    assert fast.must_wait
    idle.set_idle(True)
    assert fast.must_wait
    ended.end()
    assert members.woken == [0]
    idle.set_idle(False)
    assert fast.must_wait


def test_whoever_was_not_told_to_wait_is_not_woken() -> None:
    members = Members(10, 10)
    members.all[0].advance(100)
    members.all[1].advance(100)
    assert members.woken == []


def test_woken_once() -> None:
    members = Members(10, 10)
    members.all[0].advance(100)
    assert members.all[0].must_wait
    for step in range(90, 100):
        members.all[1].advance(step)
    assert members.woken == [0]


def test_each_has_a_drift_of_its_own() -> None:
    patient, hasty, slow = Members(0, 1000, 0).all
    for one, at in ((patient, 500), (hasty, 500), (slow, 0)):
        one.advance(at)
    assert patient.must_wait
    assert not hasty.must_wait


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=5),
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.sampled_from(["read", "read", "read", "idle", "back", "end"]),
            st.integers(1, 100),
        ),
        max_size=60,
    ),
)
def test_somebody_may_always_go_on_and_whoever_may_was_woken(
    drifts: list[int], acts: list[tuple[int, str, int]]
) -> None:
    members = Members(*drifts)
    waiting: set[int] = set()
    for who, act, step in acts:
        number = who % len(drifts)
        member = members.all[number]
        members.woken.clear()
        match act:
            case "read" if not member.ended and number not in waiting:
                member.set_idle(False)
                if member.must_wait:
                    waiting.add(number)
                else:
                    member.advance(max(0, member.watermark) + step)
            case "idle" if number not in waiting:
                member.set_idle(True)
            case "back":
                member.set_idle(False)
            case "end" if number not in waiting:
                member.end()
        waiting -= set(members.woken)
        counting = [n for n, one in enumerate(members.all) if one.counts]
        if counting:
            assert not set(counting) <= waiting, "all of them wait"
            slowest = min(members.all[n].watermark for n in counting)
            for n in waiting:
                assert members.all[n].watermark > slowest + drifts[n], "it was not woken"
        else:
            assert not waiting
