"""A job is described without running; its settings and checks meet at the start."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.graph.logical import Connection
from streamcp.operators.steps import SourceStep


@sc.source
async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    yield position, position + 1


@sc.source(splits=lambda: ["a"])
async def parts(split: str, position: int = 0) -> AsyncIterator[tuple[str, int]]:
    yield split, position + 1


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No settings of the checkout or of the shell."""
    monkeypatch.chdir(tmp_path)
    for name in ("FRESH", "CHECKPOINTS"):
        monkeypatch.delenv(f"STREAMCP_{name}", raising=False)
    return tmp_path


def test_job_shows_its_name_and_steps() -> None:
    job = sc.Job("orders", parallelism=2, max_parallelism=16, types=[int])
    job.source(numbers(), name="in")
    assert repr(job) == "Job('orders', 1 steps)"
    assert (job.name, job.types) == ("orders", (int,))
    assert (job.graph.job, job.graph.parallelism, job.graph.max_parallelism) == ("orders", 2, 16)


def test_source_without_splits_has_one_subtask() -> None:
    job = sc.Job("x", parallelism=4)
    job.source(numbers(), name="one")
    job.source(parts(), name="many")
    one, many = job.graph.nodes
    assert isinstance(one.spec, SourceStep)
    assert (one.parallelism, many.parallelism) == (1, None)


REFUSED: list[tuple[Callable[[Any], object], str]] = [
    (lambda job: job(""), "letters, digits"),
    (lambda job: job("a/b"), "letters, digits"),
    (lambda job: job(".."), "letters, digits"),
    (lambda job: job(5), "letters, digits"),
    (lambda job: job("x", parallelism=0), "from 1 to 128"),
    (lambda job: job("x", parallelism=4, max_parallelism=2), "from 1 to 2"),
    (lambda job: job("x", max_parallelism=0), "write 1 to 32768"),
    (lambda job: job("x").source(numbers), r"call it: source\(numbers\(...\)\)"),
    (lambda job: job("x").source([1, 2]), "sc.items"),
    (lambda job: job("x").source(numbers(), watermark=1), "no option 'watermark'"),
    (lambda job: job("x").source(numbers(), watermarks=1), "sc.Watermarks"),
]


@pytest.mark.parametrize(("make", "remedy"), REFUSED)
def test_impossible_job_is_refused(make: Callable[[Any], object], remedy: str) -> None:
    with pytest.raises(sc.DefinitionError, match=remedy):
        make(sc.Job)


def test_wrong_setting_of_the_job_is_refused_where_it_is_written() -> None:
    with pytest.raises(sc.SettingsError, match=r"Job\(...\): channel_capacity=0"):
        sc.Job("x", channel_capacity=0)


def test_origins_are_asked_in_order(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "pyproject.toml").write_text("[tool.streamcp]\nchannel_capacity = 5\n")
    assert sc.Job("x").settings().channel_capacity == 5
    job = sc.Job("x", channel_capacity=4)
    assert job.settings().channel_capacity == 4
    monkeypatch.setenv("STREAMCP_CHANNEL_CAPACITY", "3")
    assert job.settings().channel_capacity == 3
    assert job.settings(channel_capacity=2).channel_capacity == 2
    assert job.settings({"channel_capacity": 1}, channel_capacity=2).channel_capacity == 1


def test_unknown_argument_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(sc.SettingsError, match="did you mean 'fresh'"):
        sc.Job("x").settings(fresch=True)


def test_validate_asks_for_names_only_with_checkpoints() -> None:
    job = sc.Job("x")
    job.source(numbers()).for_each(print)
    job.validate(job.settings())
    with pytest.raises(sc.BuildError, match=r'write source.*name="numbers"'):
        job.validate(job.settings(checkpoints="here"))


async def test_run_inside_a_loop_names_run_async() -> None:
    with pytest.raises(sc.StreamcpError, match=r"await job.run_async\(\)"):
        sc.Job("x").run()


def test_start_refuses_a_wrong_job_before_anything_runs() -> None:
    with pytest.raises(sc.BuildError, match="no source"):
        sc.Job("x").start()


def test_describing_needs_no_event_loop_and_no_heavy_module() -> None:
    """Rule 20: asyncio comes with the runners and with connectors that wait."""
    code = (
        "import sys, streamcp as sc\n"
        "stream = sc.Job('x').source(sc.items([1])).map(str).key_by(str).count()\n"
        "print(*{'asyncio', 'anyio', 'rich', 'typer', 'aiohttp'} & sys.modules.keys())"
    )
    assert _python(code) == ""


def test_import_loads_no_module_of_the_package() -> None:
    code = "import sys, streamcp; print(*(m for m in sys.modules if m.startswith('streamcp.')))"
    assert _python(code) == ""


def test_unknown_word_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="'streamcp' has no attribute 'nope'"):
        sc.nope  # type: ignore[attr-defined]  # noqa: B018


def test_directory_lists_the_words_before_they_are_loaded() -> None:
    assert _python("import streamcp; print('Job' in dir(streamcp))") == "True"


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()


class FakeRunner:
    """Stands in for `runners.local`: tells what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    @asynccontextmanager
    async def start(self, *asked: Any) -> AsyncIterator[FakeRunner]:
        self.asked += asked
        yield self

    async def wait_finished(self) -> str:
        return "finished"

    def run_blocking(self, run: Callable[[], Any]) -> Any:
        return asyncio.run(run())

    async def take(self, *asked: Any) -> list[int]:
        self.asked += asked
        return [1]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    fake = FakeRunner()
    monkeypatch.setitem(sys.modules, "streamcp.runners.local", fake)
    monkeypatch.setattr("streamcp.runners.local", fake, raising=False)
    return fake


def test_run_hands_the_job_and_its_merged_settings_to_the_runner(runner: FakeRunner) -> None:
    job = sc.Job("x", channel_capacity=9, types=[int])
    job.source(numbers()).for_each(print)
    assert job.run(fresh=True) == "finished"  # type: ignore[comparison-overlap]
    settings = job.settings(fresh=True)
    assert (settings.fresh, settings.channel_capacity) == (True, 9)
    assert runner.asked == ["x", job.graph, settings, (int,)]


async def test_start_gives_the_runners_handle(runner: FakeRunner) -> None:
    job = sc.Job("x")
    job.source(numbers()).for_each(print)
    async with job.start() as running:
        assert running is runner  # type: ignore[comparison-overlap]


async def test_take_asks_for_the_outputs_of_its_stream(runner: FakeRunner) -> None:
    """The job needs no sink for it."""
    job = sc.Job("x")
    stream = job.source(numbers())
    assert await stream.union(stream.map(str)).take(3) == [1]
    nodes = job.graph.nodes
    assert runner.asked == [job.graph, (Connection(nodes[0]), Connection(nodes[1])), 3]
