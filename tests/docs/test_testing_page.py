"""The tests of the page on testing pass."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from streamcp.state.keyed import KeyedState
from tests.docs.pages import programs_of

PROGRAM = "\n".join(programs_of("testing.md"))
NAMES = (
    "added_up_for_an_hour",
    "takes_too_long",
    "counted_once_through_a_crash",
    "do_not_depend_on_circumstances",
)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The program as a module: its classes must be found where they are defined."""
    module = ModuleType("testing_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAM, "test_orders.py", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_test_of_the_page_passes_and_writes_no_file(
    page: ModuleType, name: str, tmp_path: Path
) -> None:
    tests: list[Callable[[], Coroutine[None, None, None] | None]] = [
        value for key, value in vars(page).items() if key.startswith("test_") and name in key
    ]
    (test,) = tests
    running = test()
    if running is not None:
        asyncio.run(running)
    assert [*tmp_path.iterdir()] == []


def test_every_test_of_the_page_is_run(page: ModuleType) -> None:
    assert len([key for key in vars(page) if key.startswith("test_")]) == len(NAMES)


def test_report_of_the_page_is_that_of_a_step_whose_timers_are_lost(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored = KeyedState.restore

    def without_timers(self: KeyedState, rows: Any, **options: Any) -> None:
        restored(self, [(*row[:2], ()) for row in rows])

    monkeypatch.setattr(KeyedState, "restore", without_timers)
    text = (Path(__file__).parents[2] / "docs/how-to/testing.md").read_text(encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        page.test_hourly_totals_do_not_depend_on_circumstances()
    assert f"```\n{caught.value}\n```" in text
