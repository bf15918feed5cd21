"""The first run sets the load of all others; a job that does not end is told, not waited for."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import streamcp as sc
from streamcp.compare.experiment import Experiment, Plan, run_experiment
from streamcp.compare.messages import Ended
from streamcp.compare.runs import Life, MeasuredRun

# A child without a job: it says what a job would say, as often as it is started.
CHILD = """
import sys
from pathlib import Path
from streamcp.compare import messages as m
order = m.RunOrder.from_line(sys.stdin.buffer.readline())
def tell(message):
    sys.stdout.buffer.write(m.to_line(message))
    sys.stdout.buffer.flush()
{body}
"""
GOOD = """
again = Path(order.folder, "again")
is_first = order.seconds is not None
read = {"rows": 10} if is_first else dict(order.limits)
tell(m.Running(1 if again.exists() else None, 0.1, 5 if again.exists() else 0))
tell(m.Checkpoint(0.5, {"checkpoint_id": 1, "outcome": "completed"}))
if Path(order.folder).name.startswith("3") and not again.exists():
    again.touch()
    tell(m.Sample(70.0, 5, 5, 0))
    sys.stdin.buffer.read()
out = Path(order.folder, "output", "1-out")
out.mkdir(parents=True)
(out / "a.jsonl").write_text("1\\n")
tell(m.FirstOutput(0.2))
tell(m.Ended(100.0, read))
"""


def plan_of(body: str, folder: Path) -> Plan:
    command = (sys.executable, "-c", CHILD.replace("{body}", body))
    return Plan(command=command, folder=folder / "runs", modes=("unaligned",), seconds=1.0)


class Watched:
    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.share = 0.0

    def began(self, number: int, total: int, what: str) -> None:
        self.told.append((number, total, what))
        self.share = 0.0

    def advanced(self, share: float) -> None:
        assert self.share <= share <= 1.0 or share == 0.0
        self.share = share

    def ended(self, summary: str) -> None:
        self.told.append((summary,))


async def test_all_runs_get_the_load_of_the_first_and_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamcp.compare.experiment._KILL_JITTER", 0.0)
    watched = Watched()

    experiment = await run_experiment(plan_of(GOOD, tmp_path), watched)

    first, second = experiment.measured
    (killed,) = experiment.killed
    assert first.life.ended == second.life.ended == Ended(100.0, {"rows": 10})
    assert killed.before.killed is not None
    assert killed.before.ended is None
    assert killed.after is not None
    assert killed.after.running is not None
    assert killed.after.running.restored_from == 1
    assert first.output == second.output == killed.output == {b"1-out: 1": 1}
    assert watched.told[0::2] == [
        (1, 3, "unaligned, undisturbed"),
        (2, 3, "unaligned, undisturbed"),
        (3, 3, "unaligned, killed and restored"),
    ]
    assert watched.told[1:4:2] == [("10 records, all worked off in 100.0 s",)] * 2
    assert re.fullmatch(
        r"killed after [\d.]+ s, then all worked off in 100\.0 s", str(watched.told[5][0])
    )


async def test_first_run_that_fails_ends_the_comparison(tmp_path: Path) -> None:
    plan = plan_of('tell(m.Failed("the service is gone"))', tmp_path)

    with pytest.raises(sc.JobFailed, match="the service is gone"):
        await run_experiment(plan, Watched())


async def test_first_run_that_breaks_shows_what_it_printed(tmp_path: Path) -> None:
    plan = plan_of('raise SystemError("broken to pieces")', tmp_path)

    with pytest.raises(sc.JobFailed, match="broken to pieces"):
        await run_experiment(plan, Watched())


async def test_first_run_that_never_ends_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamcp.compare.experiment._PATIENCE", 0)
    monkeypatch.setattr("streamcp.compare.experiment._PATIENCE_SECONDS", 0.5)

    with pytest.raises(sc.JobFailed, match="cut off after"):
        await run_experiment(plan_of("sys.stdin.buffer.read()", tmp_path), Watched())


def test_load_is_a_part_of_what_every_reader_sustained() -> None:
    reference = Life(ended=Ended(10.0, {"a": 1000, "b": 1, "c": 0}))

    experiment = Experiment(load=0.4, reference=reference)

    assert experiment.sustainable == {"a": 100.0, "b": 0.1}
    assert experiment.rates == pytest.approx({"a": 40.0, "b": 0.04})
    assert experiment.limits == {"a": 400, "b": 1, "c": 0}


def test_undisturbed_time_of_a_mode_that_never_ended_is_that_of_another() -> None:
    experiment = Experiment(
        [
            MeasuredRun("aligned", Life(error="cut off"), None),
            MeasuredRun("unaligned", Life(ended=Ended(8.0, {})), None),
            MeasuredRun("unaligned", Life(ended=Ended(7.0, {})), None),
        ]
    )

    assert experiment.undisturbed_seconds("unaligned") == 7.0
    assert experiment.undisturbed_seconds("aligned") == 7.0
