"""A sweep is a comparison per value, with the modes in turns; wrong values are named."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamcp.compare.experiment import Plan
from streamcp.compare.sweep import Sweep, plans_of, run_sweep
from streamcp.config import EXACTLY_ONCE_MODES
from streamcp.errors import SettingsError

PLAN = Plan(command=(), folder=Path("runs"))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("capacity=10, 100,1000", [10, 100, 1000]),
        ("load=0.5,1.2", [0.5, 1.2]),
        ("timeout=10ms,1s", [0.01, 1.0]),
        ("service=500us,1ms", [0.0005, 0.001]),
    ],
)
def test_sweep_is_read_from_text(text: str, numbers: list[float]) -> None:
    sweep = Sweep.from_text(text)

    assert [value.number for value in sweep.values] == numbers
    assert sweep.text == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed=1,2", ["'speed' cannot be swept", "capacity=10,100,1000", "load=0.5,0.8,1.0"]),
        ("capacity", ["'' is no value of capacity", "write capacity=10,100,1000"]),
        ("capacity=10,0", ["'0' is no value of capacity"]),
        ("capacity=10,1e3", ["'1e3' is no value of capacity"]),
        ("capacity=10", ["two values or more"]),
        ("capacity=10,10", ["each once"]),
        ("load=0.5,fast", ["'fast' is no value of load", "write load=0.5,0.8,1.0"]),
        ("load=0.5,inf", ["'inf' is no value of load"]),
        ("timeout=10,20", ["'10' is no value of timeout", "write timeout=10ms,100ms,1s"]),
        ("service=0ms,1ms", ["'0ms' is no value of service", "write service=1ms,10ms"]),
    ],
)
def test_wrong_sweep_is_refused_with_its_value_and_the_remedy(text: str, said: list[str]) -> None:
    with pytest.raises(SettingsError) as refused:
        Sweep.from_text(text)

    assert str(refused.value).startswith(f"--sweep {text}: ")
    assert [words for words in said if words not in str(refused.value)] == []


def test_every_value_is_a_comparison_of_all_modes_in_turns() -> None:
    plans = plans_of(PLAN, Sweep.from_text("capacity=10,20,30"))

    assert [plan.channel_capacity for _, plan in plans] == [10, 20, 30]
    assert [tuple(plan.runs) for _, plan in plans] == [
        EXACTLY_ONCE_MODES,
        EXACTLY_ONCE_MODES[::-1],
        EXACTLY_ONCE_MODES,
    ]
    assert not any(plan.kills for _, plan in plans)
    assert len({plan.folder for _, plan in plans}) == 3


def test_modes_without_a_timeout_run_once_beside_its_sweep() -> None:
    plans = plans_of(PLAN, Sweep.from_text("timeout=10ms,1s"))

    assert [(value and value.text, plan.alignment_timeout) for value, plan in plans] == [
        (None, None),
        ("10ms", "10ms"),
        ("1s", "1s"),
    ]
    assert [list(plan.runs) for _, plan in plans] == [
        ["aligned", "unaligned"],
        ["adaptive"],
        ["adaptive"],
    ]


# A child without a job: its sources give out what they are asked for, at the rate asked for.
CHILD = """
import sys
from pathlib import Path
from streamcp.compare import messages as m
order = m.RunOrder.from_line(sys.stdin.buffer.readline())
read = {"rows": 1000} if order.seconds is not None else dict(order.limits)
seconds = 10.0 if not order.rates else read["rows"] / order.rates["rows"]
(Path(order.folder) / "said").write_text(repr((order.periodic, read, dict(order.rates))))
sys.stdout.buffer.write(m.to_line(m.Running(None, 0.1, 0)))
sys.stdout.buffer.write(m.to_line(m.Ended(seconds, read)))
"""


@dataclass
class Watched:
    began_with: list[tuple[int, int, str]]

    def began(self, number: int, total: int, what: str) -> None:
        self.began_with.append((number, total, what))

    def advanced(self, share: float) -> None:
        pass

    def ended(self, summary: str) -> None:
        pass


def told_in(folder: Path) -> list[object]:
    return [ast.literal_eval(path.read_text()) for path in sorted(folder.rglob("said"))]


async def test_loads_refer_to_one_run_without_checkpoints(tmp_path: Path) -> None:
    plan = Plan(
        command=(sys.executable, "-c", CHILD), folder=tmp_path, modes=("aligned", "unaligned")
    )
    watched = Watched([])

    points = await run_sweep(plan, Sweep.from_text("load=0.5,0.8"), watched)

    assert [what for *_, what in watched.began_with] == [
        "reference, no checkpoints",
        "load 0.5, aligned, undisturbed",
        "load 0.5, unaligned, undisturbed",
        "load 0.8, unaligned, undisturbed",
        "load 0.8, aligned, undisturbed",
    ]
    assert [(number, total) for number, total, _ in watched.began_with] == [
        (n, 5) for n in range(1, 6)
    ]
    assert told_in(tmp_path) == [
        (True, {"rows": 500}, {"rows": 50.0}),
        (True, {"rows": 500}, {"rows": 50.0}),
        (True, {"rows": 800}, {"rows": 80.0}),
        (True, {"rows": 800}, {"rows": 80.0}),
        (False, {"rows": 1000}, {}),
    ]
    assert [point.experiment.load for point in points] == [0.5, 0.8]
