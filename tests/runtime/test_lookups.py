"""Answers of a lookup: which are kept, for how long, and who waits for one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamcp.runtime.lookups import Answers
from streamcp.testing.clock import ManualClock

MOVES = st.lists(
    st.tuples(st.sampled_from(["ask", "answer", "wait"]), st.integers(0, 5)), max_size=40
)


@given(size=st.integers(1, 4), ttl=st.none() | st.integers(1, 6), moves=MOVES)
def test_answers_are_those_that_were_used_last_and_are_young_enough(
    size: int, ttl: int | None, moves: list[tuple[str, int]]
) -> None:
    clock = ManualClock()
    answers: Answers[str] = Answers(size, ttl, clock)
    used: dict[int, tuple[int, float]] = {}  # key to number and time of the answer, oldest first
    for number, (move, key) in enumerate(moves):
        if move == "wait":
            clock.advance(key)
        elif move == "answer":
            answers.asks(key, "one")
            answers.answered(key, number)
            used.pop(key, None)
            used[key] = number, clock.monotonic()
            if len(used) > size:
                del used[next(iter(used))]
        else:
            found = used.get(key)
            if found is not None and ttl is not None and clock.monotonic() >= found[1] + ttl:
                del used[key]
                found = None
            assert answers.known(key) == (() if found is None else (found[0],))
            if found is not None:
                used[key] = used.pop(key)
    assert len(answers) <= size


def test_first_one_asks_and_the_others_wait_for_the_outcome() -> None:
    answers: Answers[str] = Answers(10, None, ManualClock())
    assert [answers.asks("k", name) for name in ("one", "two", "three")] == [True, False, False]
    assert answers.asks("other", "four")
    assert answers.answered("k", 7) == ["two", "three"]
    assert answers.known("k") == (7,)


def test_failure_is_not_kept_and_the_next_one_asks_again() -> None:
    answers: Answers[str] = Answers(10, None, ManualClock())
    answers.asks("k", "one")
    answers.asks("k", "two")
    assert answers.failed("k") == ["two"]
    assert answers.known("k") == ()
    assert answers.asks("k", "three")


def test_none_is_an_answer() -> None:
    answers: Answers[str] = Answers(10, None, ManualClock())
    answers.asks("k", "one")
    answers.answered("k", None)
    assert answers.known("k") == (None,)
