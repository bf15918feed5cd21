"""The picture is drawn from whatever the runs gave, and names the extra that it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.compare.experiment import Experiment
from streamcp.compare.messages import Checkpoint, Ended, Sample
from streamcp.compare.picture import draw
from streamcp.compare.runs import Life, MeasuredRun
from streamcp.config import EXACTLY_ONCE_MODES, Mode

PNG = b"\x89PNG"


def run_of(mode: Mode, *checkpoints: CheckpointStatistics) -> MeasuredRun:
    samples = [Sample(n / 4, 100 * n, 90 * n, 10) for n in range(20)]
    told = [Checkpoint(1.0, one.as_dict()) for one in checkpoints]
    return MeasuredRun(mode, Life(None, None, samples, told, ended=Ended(5.0, {})), None)


def completed(number: int, delay: float, in_flight: int) -> CheckpointStatistics:
    return CheckpointStatistics(
        checkpoint_id=number,
        outcome="completed",
        barrier_delay=delay / 2,
        durable_delay=delay,
        in_flight_bytes=in_flight,
    )


def test_picture_of_all_modes_is_a_png(tmp_path: Path) -> None:
    runs = [
        run_of(mode, completed(1, 0.5, 10), completed(2, 0.01, 2_000_000))
        for mode in EXACTLY_ONCE_MODES
    ]

    draw(tmp_path / "p.png", Experiment(runs), EXACTLY_ONCE_MODES, "a title")

    assert (tmp_path / "p.png").read_bytes().startswith(PNG)


def test_picture_of_runs_without_a_completed_checkpoint_is_drawn(tmp_path: Path) -> None:
    failed = CheckpointStatistics(checkpoint_id=1, outcome="failed", failure="EXPIRED")
    empty = MeasuredRun("adaptive", Life(), None)

    draw(
        tmp_path / "p.png",
        Experiment([run_of("aligned", failed), empty]),
        EXACTLY_ONCE_MODES,
        "a title",
    )

    assert (tmp_path / "p.png").read_bytes().startswith(PNG)


def test_missing_matplotlib_is_named_with_the_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from streamcp.errors import MissingExtra\n"
        "try:\n    import streamcp.compare.picture\n"
        "except MissingExtra as error:\n    print(error)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )

    assert 'pip install "streamcp[compare]"' in done.stdout
