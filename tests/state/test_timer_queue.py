"""Due timers come by time, and equal times as they were registered, whatever comes in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamcp.state.entries import Entry
from streamcp.state.timer_queue import TimerQueue

ADDED = st.tuples(st.just("add"), st.integers(-3, 8))
TAKEN = st.tuples(st.just("take"), st.integers(-3, 8))


@given(st.lists(ADDED | TAKEN, max_size=60))
def test_queue_gives_what_a_sorted_list_gives(actions: list[tuple[str, int]]) -> None:
    queue, listed = TimerQueue(), list[tuple[int, int]]()
    for number, (action, at) in enumerate(actions):
        if action == "add":
            queue.add(at, Entry(number, None, 0, 0))
            listed.append((at, number))
        else:
            due = sorted(one for one in listed if one[0] <= at)
            shown, taken = queue.next(at), queue.take(at)
            assert shown == taken
            assert (taken is None) == (not due)
            if taken is not None:
                assert (taken[0], taken[1].key) == due[0]
                listed.remove(due[0])
        assert queue.first == min((one[0] for one in listed), default=None)
