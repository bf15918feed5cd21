"""The text of a loop: which step a failure is of, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamcp.runtime.loop_text import LoopText


class Written:
    """A loop that keeps `f1(r)`, with another over the values of `f2(r)`, and tells of failures."""

    def __init__(self, f1: Callable[[Any], Any], f2: Callable[[Any], list[Any]]) -> None:
        self.text = LoopText()
        self.out: list[Any] = []
        self.failed: list[tuple[str, Any, str]] = []
        self.text.names.update(f1=f1, f2=f2, out=self.out, told=self.told)
        self.text.names["check"] = self.check
        with self.text.loop("for r in records:"):
            self.text.on_failure(1, "told('first', r, error)")
            self.text.line("r1 = f1(r)", 1)
            self.text.line("check(r1)")
            self.text.on_failure(2, "told('second', r1, error)")
            self.text.line("m = f2(r1)", 2)
            with self.text.loop("for v in m:"):
                self.text.on_failure(3, "told('third', v, error)")
                self.text.line("out.append(f1(v))", 3)
                self.text.line("check(v)")

    def told(self, step: str, record: Any, error: Exception) -> None:
        if record == "told":
            raise RuntimeError(f"of {step}") from error
        self.failed.append((step, record, str(error)))

    def check(self, value: Any) -> None:
        if value == "no step":
            raise ValueError("of no step")


def same(value: Any) -> Any:
    return value


def refusing(*refused: Any) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        if value in refused:
            raise KeyError(value)
        return value

    return call


def twice(value: Any) -> list[Any]:
    return [value, value]


def test_failure_is_told_of_the_step_and_the_value_that_it_got() -> None:
    written = Written(refusing(1), lambda value: [value, 1, refusing(2)(value)])
    written.text.compile("loop")([0, 1, 2, 3])
    assert written.failed == [
        ("third", 1, "1"),
        ("first", 1, "1"),
        ("second", 2, "2"),
        ("third", 1, "1"),
    ]
    assert written.out == [0, 0, 3, 3]


def test_failure_that_comes_back_with_the_traceback_of_an_earlier_one_is_told_of_its_own_step() -> (
    None
):
    kept = ValueError("kept")

    def first(value: Any) -> Any:
        if value == 1:
            raise kept
        return value

    def second(value: Any) -> list[Any]:
        raise kept

    written = Written(first, second)
    written.text.compile("loop")([1, 2, 1])
    assert [step for step, _, _ in written.failed] == ["first", "second", "first"]


@pytest.mark.parametrize("value", ["no step", "told"])
def test_what_no_step_raises_and_what_is_raised_of_a_failure_is_raised(value: str) -> None:
    written = Written(same if value == "no step" else refusing("told"), twice)
    error = ValueError if value == "no step" else RuntimeError
    with pytest.raises(error, match=r"of (no step|first)"):
        written.text.compile("loop")([0, value, 1])
    assert written.failed == []
    assert written.out == [0, 0]


@pytest.mark.parametrize("value", ["no step", "told"])
def test_the_same_in_a_loop_inside_the_loop(value: str) -> None:
    written = Written(refusing("told"), lambda record: [record, value])
    error = ValueError if value == "no step" else RuntimeError
    with pytest.raises(error, match=r"of (no step|third)"):
        written.text.compile("loop")([0, 1])
    assert written.failed == []


def test_count_by_a_total_takes_the_place_of_counting_one_by_one() -> None:
    text = LoopText()
    counted: list[int] = []
    text.names["counted"] = counted
    with text.loop("for r in records:"):
        odd = text.count("odd")
        text.line("if r % 2:")
        odd.lines.append(text.line("    odd += 1"))
        text.line("    continue")
        even = text.count("even", "others", "len(records) - others")
        even.lines.append(text.line("others += r % 2"))
        known = text.count("known")
        known.lines.append(text.line("unknown_name += 1"))
    assert text.count_by("known", "odd + even")
    assert not text.count_by("missing", "0")
    text.after.append("counted += [odd, even, known]")
    text.compile("loop")([1, 2, 3, 4, 5])
    assert counted == [3, 5, 8]
