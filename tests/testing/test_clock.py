import pytest

from streamcp.testing.clock import ManualClock


def test_clock_stands_still_until_advanced() -> None:
    clock = ManualClock(start_ms=1000)
    assert (clock.monotonic(), clock.monotonic(), clock.wall_ms()) == (0.0, 0.0, 1000)
    clock.advance(1.001)
    assert (clock.monotonic(), clock.wall_ms()) == (1.001, 2001)


def test_clock_with_tick_moves_at_each_reading() -> None:
    clock = ManualClock(tick=0.25)
    assert [clock.monotonic(), clock.monotonic()] == [0.25, 0.5]
    assert clock.now == 0.5


@pytest.mark.parametrize("milliseconds", [1, 29, 57, 290, 1001, 86_400_001])
def test_advance_by_milliseconds_is_exact(milliseconds: int) -> None:
    clock = ManualClock(start_ms=0)
    clock.advance(milliseconds / 1000)
    assert clock.wall_ms() == milliseconds


def test_advance_backwards_is_refused() -> None:
    with pytest.raises(ValueError, match="never goes back"):
        ManualClock().advance(-1)
