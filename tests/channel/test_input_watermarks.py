"""The least of what active inputs have announced, and never less than before (I4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamcp.channel.input_watermarks import InputWatermarks
from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP


def test_slowest_input_counts() -> None:
    inputs = InputWatermarks(2)
    inputs.advance(0, 10)
    assert inputs.watermark == MIN_TIMESTAMP
    inputs.advance(1, 5)
    assert inputs.watermark == 5
    inputs.advance(1, 20)
    assert inputs.watermark == 10


def test_idle_input_holds_nothing_back_and_counts_again_when_it_announces() -> None:
    inputs = InputWatermarks(2)
    inputs.advance(0, 10)
    inputs.set_idle(1, True)
    assert inputs.watermark == 10
    inputs.advance(1, 3)
    assert (inputs.watermark, inputs.all_idle) == (10, False)
    inputs.advance(0, 30)
    assert inputs.watermark == 10
    inputs.advance(1, 20)
    assert inputs.watermark == 20


def test_when_all_are_idle_the_fastest_counts() -> None:
    inputs = InputWatermarks(2)
    inputs.advance(0, 10)
    inputs.advance(1, 20)
    inputs.set_idle(1, True)
    inputs.set_idle(0, True)
    assert (inputs.watermark, inputs.all_idle) == (20, True)


def test_ended_inputs_hold_nothing_back_and_are_not_idle() -> None:
    inputs = InputWatermarks(2)
    inputs.advance(0, 10)
    inputs.end(1)
    assert (inputs.watermark, inputs.all_idle) == (10, False)
    inputs.end(0)
    assert (inputs.watermark, inputs.all_idle) == (MAX_TIMESTAMP, False)


def test_ignored_inputs_say_nothing() -> None:
    inputs = InputWatermarks(2, frozenset({1}))
    inputs.advance(0, 10)
    inputs.end(1)
    assert inputs.watermark == 10
    inputs.end(0)
    assert inputs.watermark == MAX_TIMESTAMP


def test_inputs_are_restored_as_they_were() -> None:
    inputs = InputWatermarks(3)
    inputs.advance(0, 10)
    inputs.advance(1, 20)
    inputs.set_idle(2, True)
    again = InputWatermarks(3)
    for number in range(3):
        again.restore(number, *inputs.announced(number))
    assert again.watermark == inputs.watermark == 10


steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["advance", "idle", "end"]), st.integers(0, 50)),
    max_size=40,
)


@given(steps)
def test_watermark_is_the_least_of_the_active_and_never_goes_back(
    told: list[tuple[int, str, int]],
) -> None:
    inputs, last = InputWatermarks(3), MIN_TIMESTAMP
    reached, idle, ended = [MIN_TIMESTAMP] * 3, set[int](), set[int]()
    for number, what, value in told:
        if number in ended:
            continue
        match what:
            case "advance":
                inputs.advance(number, value)
                reached[number] = max(reached[number], value)
                idle.discard(number)
            case "idle":
                inputs.set_idle(number, value % 2 == 0)
                (idle.add if value % 2 == 0 else idle.discard)(number)
            case "end":
                inputs.end(number)
                ended.add(number)
        active = {0, 1, 2} - idle - ended
        if active:
            assert inputs.watermark == max(last, min(reached[one] for one in active))
        assert inputs.watermark >= last
        assert inputs.all_idle == (len(ended) < 3 and not active)
        last = inputs.watermark
