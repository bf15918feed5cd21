from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import pytest
import uvloop

import streamcp as sc
from streamcp.testing import standing, trial

MEMORY = sc.Checkpoints(to="nowhere")


@dataclass
class Sum:
    total: int = 0


@dataclass(frozen=True)
class Event:
    key: str
    ts: int


class Ledger:
    """An exactly-once sink that must never be opened in a trial."""

    async def write(self, records: Sequence[Any], transaction: sc.Transaction) -> None:
        raise AssertionError

    async def prepare(self, transaction: sc.Transaction) -> str:
        raise AssertionError

    async def commit(self, transaction: sc.Transaction, token: str) -> None:
        raise AssertionError


def add(number: int, state: Sum, ctx: sc.KeyContext[int]) -> list[int]:
    state.total += number
    return [state.total]


def totals(sink: Any = Ledger) -> sc.Job:
    job = sc.Job("totals", checkpoints=MEMORY)
    numbers = job.source(sc.items([99]), name="numbers")
    numbers.key_by(lambda n: n % 2).process(add, state=Sum, name="add").sink(sink, name="out")
    return job


def mapped(fn: Callable[..., Any], **options: Any) -> sc.Job:
    job = sc.Job("mapped")
    job.source(sc.items([99]), name="numbers").map(fn, **options).sink(sc.discard(), name="out")
    return job


# ---- feeding and results


async def test_fed_records_come_out_at_the_sink_and_the_source_itself_is_not_read() -> None:
    async with trial(totals()) as running:
        running.feed("numbers", [1, 2, 3])
        assert await running.results("out") == [1, 2, 4]
        running.feed("numbers", [5])
        assert await running.results("out") == [1, 2, 4, 9]


async def test_source_and_sink_are_found_by_what_the_verbs_returned() -> None:
    job, source = sc.Job("j"), sc.items([99])
    numbers = job.source(source)
    out = numbers.map(str).sink(sc.collect())
    async with trial(job) as running:
        running.feed(numbers, [1])
        running.feed(source, [2])
        assert await running.results(out) == ["1", "2"]


async def test_sources_are_worked_off_in_the_order_in_which_they_are_fed() -> None:
    job = sc.Job("j")
    left, right = job.source(sc.items([0]), name="left"), job.source(sc.items([0]), name="right")
    left.union(right).sink(sc.discard(), name="out")
    async with trial(job) as running:
        running.feed("right", [1, 2])
        running.feed("left", [3])
        running.feed("right", [4])
        assert await running.results("out") == [1, 2, 3, 4]


async def test_callers_job_is_left_as_it_was_and_can_be_tried_again() -> None:
    job = totals()
    specs = [node.spec for node in job.graph.nodes]
    for _ in range(2):
        async with trial(job) as running:
            running.feed("numbers", [1, 3])
            assert await running.results("out") == [1, 4]
    assert [node.spec for node in job.graph.nodes] == specs


async def test_ended_sources_let_windows_close_and_the_job_finish() -> None:
    job = sc.Job("j")
    numbers = job.source(sc.items([0]), name="numbers")
    numbers.batch(2, "1m", name="pairs").sink(sc.discard(), name="out")
    async with trial(job) as running:
        running.feed("numbers", [1, 2, 3])
        assert await running.results("out") == [[1, 2]]
        running.end("numbers")
        assert await running.results("out") == [[1, 2], [3]]
        assert (await running.finish()).outcome == "finished"


async def test_finish_ends_every_source_and_lets_calls_take_their_time() -> None:
    async def slowly(number: int) -> int:
        await asyncio.sleep(3600)
        return -number

    async with trial(mapped(slowly)) as running:
        running.feed("numbers", [1, 2])
        result = await running.finish()
        assert (result.outcome, await running.results("out")) == ("finished", [-1, -2])
        assert running.now == datetime(2024, 1, 1, 1, tzinfo=UTC)


async def test_side_outputs_are_the_results_of_their_sinks() -> None:
    odd = sc.Tag[int]("odd")

    def sort(number: int, state: Sum, ctx: sc.KeyContext[int]) -> list[int]:
        if number % 2:
            ctx.emit_to(odd, number)
            return []
        return [number]

    job = sc.Job("j")
    numbers = job.source(sc.items([0]), name="numbers")
    sorted_out = numbers.key_by(lambda n: n).process(sort, state=Sum, name="sort")
    sorted_out.sink(sc.discard(), name="even")
    sorted_out.side(odd).sink(sc.discard(), name="odd")
    async with trial(job) as running:
        running.feed("numbers", range(5))
        assert await running.results("even") == [0, 2, 4]
        assert await running.results("odd") == [1, 3]


# ---- time


async def test_sleeping_call_waits_for_time_to_be_moved() -> None:
    async def slowly(number: int) -> int:
        await asyncio.sleep(3600)
        return -number

    async with trial(mapped(slowly)) as running:
        running.feed("numbers", [1])
        assert await running.results("out") == []
        await running.advance("3599s")
        assert await running.results("out") == []
        await running.advance("1s")
        assert await running.results("out") == [-1]


async def test_timer_fires_at_its_time_and_time_begins_at_start() -> None:
    def remind(number: int, state: Sum, ctx: sc.KeyContext[int]) -> None:
        ctx.set_timer(after="30s")

    def fire(timestamp: int, state: Sum, ctx: sc.KeyContext[int]) -> list[int]:
        return [timestamp]

    job = sc.Job("j")
    numbers = job.source(sc.items([0]), name="numbers").key_by(lambda n: n)
    numbers.process(remind, state=Sum, on_timer=fire, name="remind").sink(sc.discard(), name="out")
    async with trial(job, start=5_000_000_000) as running:
        running.feed("numbers", [1])
        await running.advance("29.999s")
        assert await running.results("out") == []
        await running.advance("1ms")
        assert await running.results("out") == [5_000_030_000]


async def test_call_that_hangs_is_timed_out_and_tried_again() -> None:
    calls: list[float] = []

    async def hang(number: int) -> int:
        calls.append(asyncio.get_running_loop().time())
        await asyncio.Event().wait()
        return number

    job = sc.Job("j")
    retry = sc.Retry(attempts=2, backoff="1s", jitter=0.0)
    step = job.source(sc.items([0]), name="numbers").map(
        hang, name="hang", timeout="2s", retry=retry, on_error="divert"
    )
    step.sink(sc.discard(), name="out")
    step.errors.sink(sc.discard(), name="dead")
    async with trial(job) as running:
        running.feed("numbers", [7])
        await running.advance("4.9s")
        assert await running.results("dead") == []
        await running.advance("100ms")
        assert [failure.record for failure in await running.results("dead")] == [7]
    assert calls == pytest.approx([0.0, 3.0])


async def test_rate_lets_calls_through_as_time_passes() -> None:
    async def call(number: int) -> int:
        return number

    async with trial(mapped(call, rate=sc.Rate(1, per="1s"))) as running:
        running.feed("numbers", range(5))
        assert await running.results("out") == [0]
        await running.advance("2s")
        assert await running.results("out") == [0, 1, 2]


async def test_call_that_waits_for_the_test_goes_on_when_it_is_woken() -> None:
    answer = asyncio.Event()

    async def ask(number: int) -> int:
        await answer.wait()
        return number

    async with trial(mapped(ask)) as running:
        running.feed("numbers", [1])
        assert await running.results("out") == []
        answer.set()
        assert await running.results("out") == [1]


async def test_functions_of_executors_run_inline() -> None:
    async with trial(mapped(lambda n: n + 1, executor="process")) as running:
        running.feed("numbers", [1, 2])
        assert await running.results("out") == [2, 3]


# ---- event time


def windowed() -> sc.Job:
    job = sc.Job("windowed", checkpoints=MEMORY, types=[Event])
    events = job.source(
        sc.items([Event("", 0)]), name="events", watermarks=sc.Watermarks(lambda event: event.ts)
    )
    counts = events.key_by(lambda event: event.key).window(sc.Tumbling("1s"), name="counts").count()
    counts.map(lambda result: (result.key, result.start, result.value)).sink(Ledger, name="out")
    return job


T0 = 1_700_000_000_000


async def test_each_record_is_followed_by_its_watermark_so_lateness_is_sure() -> None:
    async with trial(windowed()) as running:
        running.feed("events", [Event("a", T0), Event("a", T0 + 1_001), Event("a", T0 + 2)])
        assert await running.results("out") == [("a", T0, 1)]
        assert await running.late("counts") == [Event("a", T0 + 2)]


async def test_what_is_read_again_behind_a_crash_is_late_again_and_only_once() -> None:
    async with trial(windowed()) as running:
        running.feed("events", [Event("a", T0)])
        await running.checkpoint()
        running.feed("events", [Event("a", T0 + 1_001), Event("a", T0 + 2)])
        assert await running.late("counts") == [Event("a", T0 + 2)]
        await running.crash_and_restore()
        assert await running.results("out") == [("a", T0, 1)]
        assert await running.late("counts") == [Event("a", T0 + 2)]


def partitioned(parallelism: int = 1) -> sc.Job:
    @sc.source(splits=lambda: ["read from outside"])
    async def partitions(split: str, position: int = 0) -> AsyncIterator[tuple[Event, int]]:
        raise AssertionError
        yield

    job = sc.Job("partitioned")
    events = job.source(
        partitions(),
        name="events",
        watermarks=sc.Watermarks(lambda event: event.ts, idle_after="10s"),
        parallelism=parallelism,
    )
    counts = events.key_by(lambda event: event.key).window(sc.Tumbling("1s"), name="counts").count()
    counts.map(lambda result: (result.key, result.value)).sink(sc.discard(), name="out")
    return job


@pytest.mark.parametrize("parallelism", [1, 2])
async def test_slowest_split_holds_the_watermark_back_until_it_is_idle(parallelism: int) -> None:
    async with trial(partitioned(parallelism), splits={"events": ["p0", "p1"]}) as running:
        running.feed("events", [Event("a", T0), Event("a", T0 + 5_000)], split="p0")
        assert await running.results("out") == []
        running.feed("events", [Event("b", T0 + 1)], split="p1")
        assert await running.results("out") == []
        await running.advance("9s")
        running.feed("events", [Event("a", T0 + 5_001)], split="p0")
        await running.advance("2s")
        assert sorted(await running.results("out")) == [("a", 1), ("b", 1)]


async def test_divided_source_has_one_split_where_none_is_named() -> None:
    async with trial(partitioned()) as running:
        running.feed("events", [Event("a", T0)])
        running.end("events")
        assert await running.results("out") == [("a", 1)]


async def test_unknown_split_is_told_with_the_known_ones() -> None:
    async with trial(partitioned(), splits={"events": ["p0", "p1"]}) as running:
        with pytest.raises(sc.StreamcpError, match=r"no split None; write one of 'p0', 'p1'"):
            running.feed("events", [])
        running.end("events", split="p0")
        with pytest.raises(sc.StreamcpError, match=r"split 'p0', has ended"):
            running.feed("events", [], split="p0")
        running.end("events")
        with pytest.raises(sc.StreamcpError, match=r"'events' has ended already"):
            running.end("events")


async def test_splits_of_a_source_without_are_refused() -> None:
    with pytest.raises(sc.DefinitionError, match="no source of that name that has splits"):
        trial(totals(), splits={"numbers": ["p0"]})
    async with trial(totals()) as running:
        with pytest.raises(sc.StreamcpError, match="'numbers' has no splits: leave split='p0' out"):
            running.feed("numbers", [1], split="p0")


# ---- checkpoints and crashes


async def test_exactly_once_results_show_as_written_and_a_checkpoint_commits_them() -> None:
    async with trial(totals()) as running:
        running.feed("numbers", [1, 3])
        assert await running.results("out") == [1, 4]
        assert await running.results("out", committed=True) == []
        statistics = await running.checkpoint()
        assert statistics.outcome == "completed"
        assert await running.results("out", committed=True) == [1, 4]


async def test_crash_undoes_what_was_not_committed_and_reads_it_again() -> None:
    async with trial(totals()) as running:
        running.feed("numbers", [1])
        await running.checkpoint()
        running.feed("numbers", [3])
        assert await running.results("out") == [1, 4]
        await running.crash_and_restore()
        assert await running.results("out") == [1, 4]
        assert await running.results("out", committed=True) == [1]


async def test_at_least_once_sink_keeps_what_it_wrote_and_gets_it_again() -> None:
    async with trial(totals(sc.discard())) as running:
        running.feed("numbers", [1])
        await running.checkpoint()
        running.feed("numbers", [3])
        assert await running.results("out") == [1, 4]
        await running.crash_and_restore()
        assert await running.results("out") == [1, 4, 4]


async def test_crash_before_any_checkpoint_begins_anew() -> None:
    async with trial(totals()) as running:
        running.feed("numbers", [1, 3])
        assert await running.state("add", 1) == Sum(4)
        await running.crash_and_restore()
        assert await running.results("out") == [1, 4]


async def test_function_that_keeps_something_beside_its_state_is_found_out() -> None:
    seen: list[int] = []

    def forgetful(number: int, state: Sum, ctx: sc.KeyContext[int]) -> list[int]:
        seen.append(number)
        return [len(seen)]

    job = sc.Job("j", checkpoints=MEMORY)
    numbers = job.source(sc.items([0]), name="numbers").key_by(lambda n: n)
    numbers.process(forgetful, state=Sum, name="forgetful").sink(Ledger, name="out")
    async with trial(job) as running:
        running.feed("numbers", [1])
        await running.checkpoint()
        running.feed("numbers", [2])
        await running.settle()
        await running.crash_and_restore()
        assert await running.results("out") == [1, 3]  # an honest function would give 1, 2


async def test_calls_under_way_are_made_again_behind_a_crash() -> None:
    calls: list[int] = []

    async def slowly(number: int) -> int:
        calls.append(number)
        await asyncio.sleep(10)
        return number

    async with trial(mapped(slowly, name="slowly"), checkpoints=MEMORY) as running:
        running.feed("numbers", [1, 2])
        await running.settle()
        await running.checkpoint()
        await running.crash_and_restore()
        await running.advance("10s")
        assert await running.results("out") == [1, 2]
    assert calls == [1, 2, 1, 2]


async def test_aligned_checkpoint_waits_for_calls_and_time_moves_on() -> None:
    async def slowly(number: int) -> int:
        await asyncio.sleep(10)
        return number

    aligned = sc.Checkpoints(to="nowhere", mode="aligned", timeout="1d")
    job = mapped(slowly, name="slowly", concurrency=1)
    async with trial(job, checkpoints=aligned) as running:
        running.feed("numbers", range(300))
        await running.settle()
        await running.checkpoint()
        assert len(await running.results("out")) > 50
        assert running.now > datetime(2024, 1, 1, 0, 5, tzinfo=UTC)


async def test_checkpoints_are_taken_only_on_request() -> None:
    job = totals()
    async with trial(job, checkpoints=sc.Checkpoints(to="x", every="1s")) as running:
        running.feed("numbers", [1])
        await running.advance("1h")
        assert await running.results("out", committed=True) == []


async def test_job_without_checkpoints_cannot_take_one() -> None:
    async with trial(mapped(str)) as running:
        with pytest.raises(sc.StreamcpError, match=r"checkpoint\(\): job 'mapped' has no checkpo"):
            await running.checkpoint()
        with pytest.raises(sc.StreamcpError, match=r"crash_and_restore\(\): .*trial\(job, checkp"):
            await running.crash_and_restore()


async def test_record_that_cannot_be_stored_fails_the_checkpoint_naming_step_and_class() -> None:
    class Undeclared:
        pass

    async def hold(number: int) -> Undeclared:
        return Undeclared()

    async def wait(thing: Any) -> Any:
        await asyncio.sleep(10)

    job = sc.Job("j", checkpoints=MEMORY, strict=False)
    held = job.source(sc.items([0]), name="numbers").map(hold, name="hold")
    held.map(wait, name="wait").sink(sc.discard(), name="out")
    async with trial(job) as running:
        running.feed("numbers", [1])
        with pytest.raises(sc.CheckpointFailed, match=r"'wait'.*Undeclared"):
            await running.checkpoint()


# ---- state


async def test_state_is_a_copy_of_what_a_step_has_of_a_key() -> None:
    async with trial(totals()) as running:
        running.feed("numbers", [1, 3, 4])
        assert await running.state("add", 1) == Sum(4)
        assert await running.state("add", 0) == Sum(4)
        assert await running.state("add", 7) is None
        (await running.state("add", 1)).total = 99
        assert await running.state("add", 1) == Sum(4)


async def test_state_of_coroutine_steps_and_of_all_subtasks_is_found() -> None:
    async def count(number: int, state: Sum, ctx: sc.KeyContext[int]) -> list[int]:
        state.total += 1
        return []

    job = sc.Job("j", parallelism=3)
    numbers = job.source(sc.items([0]), name="numbers").key_by(lambda n: n)
    step = numbers.process(count, state=Sum, name="count")
    step.rebalance().sink(sc.discard(), name="out")
    async with trial(job) as running:
        running.feed("numbers", [*range(10), 5])
        assert [(await running.state(step, key)).total for key in (4, 5)] == [1, 2]


async def test_state_of_a_step_that_keeps_none_is_an_error_that_lists_those_that_do() -> None:
    async with trial(totals()) as running:
        with pytest.raises(sc.StreamcpError, match=r"no step 'out' with state.*that have: add"):
            await running.state("out", 1)


# ---- services


class Http:
    def __init__(self, opened: list[str]) -> None:
        self._opened = opened

    async def get(self, number: int) -> str:
        return f"page {number}"

    async def __aenter__(self) -> Http:
        self._opened.append("open")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._opened.append("closed")


@asynccontextmanager
async def open_http() -> AsyncIterator[Http]:
    raise AssertionError("this is outside")
    yield


async def fetch(number: int, http: Http) -> str:
    return await http.get(number)


def fetching(**options: Any) -> sc.Job:
    job = sc.Job("fetching", checkpoints=MEMORY, **options)
    numbers = job.source(sc.items([0]), name="numbers")
    numbers.map(fetch, uses=open_http, name="fetch").sink(Ledger, name="out")
    return job


async def test_context_manager_stands_in_for_a_service_and_is_entered_and_left() -> None:
    opened: list[str] = []
    async with trial(fetching(), services={open_http: Http(opened)}) as running:
        running.feed("numbers", [1])
        assert await running.results("out") == ["page 1"]
        assert opened == ["open"]
    assert opened == ["open", "closed"]


async def test_function_stands_in_for_a_service_and_opens_it_for_each_life() -> None:
    opened: list[str] = []

    @asynccontextmanager
    async def opens() -> AsyncIterator[Http]:
        opened.append("opens")
        yield Http([])

    async with trial(fetching(), services={open_http: opens}) as running:
        await running.crash_and_restore()
        running.feed("numbers", [1])
        assert await running.results("out") == ["page 1"]
    assert opened == ["opens", "opens"]


async def test_plain_object_and_mock_are_the_service_itself() -> None:
    class Fake:
        async def get(self, number: int) -> str:
            return "fake"

    mock = AsyncMock()
    mock.get.return_value = "mocked"
    for service, expected in ((Fake(), "fake"), (mock, "mocked")):
        async with trial(fetching(), services={open_http: service}) as running:
            running.feed("numbers", [1])
            assert await running.results("out") == [expected]
    mock.get.assert_awaited_once_with(1)


async def test_service_whose_opener_is_made_by_the_job_is_named_by_its_function_or_step() -> None:
    @asynccontextmanager
    async def open_at(url: str) -> AsyncIterator[Http]:
        raise AssertionError(url)
        yield

    def fetching_at(url: str) -> sc.Job:
        job = sc.Job("fetching")
        numbers = job.source(sc.items([0]), name="numbers")
        step = numbers.map(fetch, uses=partial(open_at, url), name="fetch")
        step.sink(sc.discard(), name="out")
        return job

    for key in (open_at, "fetch"):
        async with trial(fetching_at("x"), services={key: Http([])}) as running:
            running.feed("numbers", [1])
            assert await running.results("out") == ["page 1"]
    with pytest.raises(sc.DefinitionError, match=r"open_at \(in step 'fetch'\)"):
        trial(fetching_at("x"))


async def test_fake_of_the_job_stands_in_where_the_trial_names_no_service() -> None:
    class Fake:
        async def get(self, number: int) -> str:
            return "named"

    @asynccontextmanager
    async def fake_http() -> AsyncIterator[Http]:
        yield Http([])

    job = fetching(fakes={open_http: fake_http, "numbers": sc.items([9])})
    for services, expected in ((None, "page 1"), ({open_http: Fake()}, "named")):
        async with trial(job, services=services) as running:
            running.feed("numbers", [1])
            assert await running.results("out") == [expected]


async def test_service_that_is_not_replaced_is_refused_with_the_steps_that_use_it() -> None:
    with pytest.raises(sc.DefinitionError, match=r"for open_http \(in step 'fetch'\)"):
        trial(fetching())


async def test_replacement_of_nothing_is_refused() -> None:
    with pytest.raises(sc.DefinitionError, match=r"fetch: .*replaces nothing.*use open_http"):
        trial(fetching(), services={open_http: 1, fetch: 2})


# ---- what goes wrong


def divide(number: int) -> float:
    return 1 / number


async def test_failure_of_the_job_is_raised_from_the_call_that_met_it_and_from_later_ones() -> None:
    async with trial(mapped(divide, name="divide")) as running:
        running.feed("numbers", [1])
        await running.settle()
        running.feed("numbers", [0])
        for _ in range(2):
            with pytest.raises(
                sc.JobFailed, match=r"'divide'.*test_trial.py:\d+.*ZeroDivisionError"
            ):
                await running.results("out")


async def test_failure_that_no_call_has_met_is_raised_at_the_end_of_the_body() -> None:
    with pytest.raises(sc.JobFailed, match="ZeroDivisionError"):
        async with trial(mapped(divide, name="divide")) as running:
            running.feed("numbers", [0])


async def test_job_that_has_failed_can_be_restored() -> None:
    broken = True

    def fail_once(number: int) -> int:
        if broken and number == 2:
            raise ValueError("broken")
        return number

    async with trial(mapped(fail_once, name="fail"), checkpoints=MEMORY) as running:
        running.feed("numbers", [1])
        await running.checkpoint()
        running.feed("numbers", [2])
        with pytest.raises(sc.JobFailed, match="broken"):
            await running.settle()
        broken = False
        await running.crash_and_restore()
        assert await running.results("out") == [1, 2]


async def test_unknown_names_are_told_with_the_known_ones() -> None:
    async with trial(totals()) as running:
        with pytest.raises(sc.StreamcpError, match="no source 'nmbers'; it has 'numbers'"):
            running.feed("nmbers", [1])
        with pytest.raises(sc.StreamcpError, match="no sink 'ot'; it has 'out'"):
            await running.results("ot")
        with pytest.raises(sc.StreamcpError, match="no window or join 'add'; it has none"):
            await running.late("add")
        with pytest.raises(sc.StreamcpError, match="'items' is in job 'totals' 0 times"):
            running.feed(sc.items([1]), [1])
        with pytest.raises(sc.StreamcpError, match="7 is no step"):
            running.feed(7, [1])  # type: ignore[arg-type]


@pytest.mark.parametrize("records", ["abc", b"abc", {"a": 1}, 7])
async def test_what_is_no_collection_of_records_is_not_fed(records: Any) -> None:
    async with trial(totals()) as running:
        with pytest.raises(sc.StreamcpError, match=r"write feed\('numbers', \[record\]\)"):
            running.feed("numbers", records)


async def test_ended_source_takes_no_more() -> None:
    async with trial(totals()) as running:
        running.end("numbers")
        with pytest.raises(sc.StreamcpError, match="source 'numbers' has ended: nothing comes"):
            running.feed("numbers", [1])


async def test_trial_is_of_no_use_outside_of_its_body() -> None:
    made = trial(totals())
    with pytest.raises(sc.StreamcpError, match="inside its body"):
        made.feed("numbers", [1])
    async with made as running:
        pass
    with pytest.raises(sc.StreamcpError, match="inside its body"):
        await running.results("out")


async def test_job_function_that_was_not_called_is_refused() -> None:
    with pytest.raises(sc.DefinitionError, match=r"write trial\(totals\(\)\)"):
        trial(totals)  # type: ignore[arg-type]


async def test_naive_start_and_bare_number_as_duration_are_refused() -> None:
    with pytest.raises(sc.DefinitionError, match="naive"):
        trial(totals(), start=datetime(2024, 1, 1))  # noqa: DTZ001
    async with trial(totals()) as running:
        with pytest.raises(sc.SettingsError, match="advance=30 is not a duration"):
            await running.advance(30)  # type: ignore[arg-type]


async def test_job_that_goes_round_in_circles_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "_LIMIT", 2_000)
    monkeypatch.setattr(standing, "_MANY_LOOKS", 1_000)

    def again(timestamp: int, state: Sum, ctx: sc.KeyContext[int]) -> None:
        ctx.set_timer(after="0s")

    def first(number: int, state: Sum, ctx: sc.KeyContext[int]) -> None:
        ctx.set_timer(after="0s")

    job = sc.Job("j")
    numbers = job.source(sc.items([0]), name="numbers").key_by(lambda n: n)
    numbers.process(first, state=Sum, on_timer=again, name="again").sink(sc.discard(), name="out")
    running = trial(job)
    await running.__aenter__()
    running.feed("numbers", [1])
    with pytest.raises(sc.StreamcpError, match="does not come to rest"):
        await running.settle()
    await running.__aexit__(ValueError, ValueError(), None)


async def test_call_that_is_tried_for_ever_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "_LONGEST_RUN", 2_000)

    async def poll(number: int) -> int:
        for _ in itertools.count():
            await asyncio.sleep(1)
        return number

    async with trial(mapped(poll)) as running:
        running.feed("numbers", [1])
        await running.advance("1h")
        with pytest.raises(sc.StreamcpError, match="does not come to rest"):
            await running.finish()


# ---- beside the loop of the test


async def use_beside_other_tasks() -> list[int]:
    """The loop and the task of the test are the same ones behind each call."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    async with asyncio.timeout(60), trial(totals()) as running:
        running.feed("numbers", [1])
        results = await running.results("out")
        assert (asyncio.get_running_loop(), asyncio.current_task()) == (loop, task)
        await asyncio.sleep(0)
        running.feed("numbers", [3])
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(running.results("out"))
    return results + asked.result()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_trial_runs_inside_any_event_loop(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(use_beside_other_tasks()) == [1, 1, 4]


def test_trial_runs_without_an_event_loop() -> None:
    async def use() -> list[int]:
        async with trial(totals()) as running:
            running.feed("numbers", [1])
            return await running.results("out")

    assert _driven_by_hand(use()) == [1]


def _driven_by_hand(main: Coroutine[Any, Any, list[int]]) -> list[int]:
    with pytest.raises(StopIteration) as ended:
        main.send(None)
    result: list[int] = ended.value.value
    return result


async def test_trial_is_strict_unless_the_job_says_otherwise() -> None:
    def job(strict: bool | None) -> sc.Job:
        job = sc.Job("shared", strict=strict)
        read = job.source(sc.items(list[list[int]]()), name="read")
        read.tap(lambda s: s.sink(sc.discard(), name="aside")).inspect(
            lambda record: record.append(1), name="change"
        ).sink(sc.discard(), name="out")
        return job

    async def results(strict: bool | None) -> Any:
        async with trial(job(strict)) as tried:
            tried.feed("read", [[0]])
            return await tried.results("out")

    with pytest.raises(sc.JobFailed, match=r"step 'change'.*has changed a record in place"):
        await results(None)
    assert await results(False) == [[0, 1]]
