"""How fast streamcp is beside its peers, and beside a bare loop.

All engines take turns in rounds, each run in a fresh process; the order is reversed each round, so
that a drift of the machine's speed hits all alike. A ratio is that of two runs of one round. How
many records a run has depends on the engine, so that each takes about as long; rates count the
records of the source, from the first one drawn until the last result is there. Every answer is
compared with arithmetic: an engine that computes something else is an error, however fast it is.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Run, Suite, Target, at_least, check, median_row, skipped
from benchmarks.peers.asking import EngineFailed, ask
from benchmarks.peers.catalogue import LOOP, PEERS, STREAMCP, Engine, default_home
from benchmarks.peers.work import Answer, expected


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rounds, and those in which slow peers take part; seconds per run, with checkpoints more;
    where the peers are installed."""

    rounds: int
    slow_rounds: int
    seconds: float
    checkpointed_seconds: float
    home: str = field(default_factory=lambda: str(default_home()))


FULL = Sizes(rounds=9, slow_rounds=2, seconds=1.0, checkpointed_seconds=3.5)
QUICK = Sizes(rounds=2, slow_rounds=1, seconds=0.3, checkpointed_seconds=1.2)


@dataclass
class Measured:
    """The answers of one workload: one mapping of engine to answer per round; and why some engines
    gave none."""

    rounds: list[dict[str, Answer]]
    failed: dict[str, str]

    def of(self, name: str) -> list[Answer]:
        """All answers of one engine."""
        return [answers[name] for answers in self.rounds if name in answers]

    def ratios(self, above: str, below: str) -> list[float]:
        """Of the rates of two engines, in each round that both took part in."""
        return [
            answers[above].per_second / answers[below].per_second
            for answers in self.rounds
            if above in answers and below in answers
        ]


def able(workload: str) -> list[Engine]:
    """The engines that can do it at all."""
    return [one for one in (LOOP, STREAMCP, *PEERS) if workload in one.rates]


async def measure(run: Run[Sizes], workload: str, floor: str, seconds: float) -> Measured:
    """Let all engines take turns; the loop, if it cannot do `workload`, does `floor`."""
    measured = Measured([], {})
    for number in range(run.sizes.rounds):
        answers: dict[str, Answer] = {}
        for engine in _turns(run.sizes, workload, number):
            if engine.name in measured.failed:
                continue
            run.say(f"round {number + 1} of {run.sizes.rounds}, {engine.name}")
            task = workload if workload in engine.rates else floor
            try:
                answers[engine.name] = await ask(
                    engine, Path(run.sizes.home), task, engine.records(task, seconds)
                )
            except EngineFailed as error:
                if engine in (LOOP, STREAMCP):
                    raise
                measured.failed[engine.name] = str(error)
        measured.rounds.append(answers)
    keep = [{name: dataclasses.asdict(one) for name, one in a.items()} for a in measured.rounds]
    run.keep("rounds", keep)
    return measured


def _turns(sizes: Sizes, workload: str, number: int) -> Iterator[Engine]:
    """Who is asked in round `number`, in which order."""
    engines = [LOOP, *(one for one in able(workload) if one is not LOOP)]
    for engine in engines if number % 2 == 0 else engines[::-1]:
        if engine.installed_in(Path(sizes.home)) and (
            not engine.slow or number < sizes.slow_rounds
        ):
            yield engine


# ---- rows


def rows_of(
    measured: Measured, workload: str, home: Path, beside_peer: Target, beside_loop: Target | None
) -> list[Row]:
    """The loop's rate; streamcp beside the loop and the fastest peer; then each peer."""
    floor = statistics.median(one.per_second for one in measured.of(LOOP.name))
    rows = [
        Row(f"{LOOP.name}: records per second", floor, "/s"),
        _share_row(STREAMCP, measured, beside_loop),
        _fastest_row(measured, beside_peer),
    ]
    for peer in PEERS:
        rows += _peer_rows(peer, measured, workload, home)
    return rows + _result_rows(measured, workload)


def _share_row(engine: Engine, measured: Measured, target: Target | None = None) -> Row:
    answers = measured.of(engine.name)
    rate = statistics.median(one.per_second for one in answers)
    startup = statistics.median(one.startup for one in answers)
    details = [
        f"{rate:,.0f} records/s",
        f"{answers[0].records:,} a run, {len(answers)} runs",
        f"start-up {startup:.1f} s",
        *(f"{name} {value}" for name, value in answers[-1].extra.items()),
    ]
    shares = measured.ratios(engine.name, LOOP.name)
    name = f"{engine.name} / {LOOP.name}"
    return median_row(name, shares, "×", target=target, detail="; ".join(details))


def _fastest_row(measured: Measured, target: Target) -> Row:
    """The ratio to whichever peer was fastest in each round; and that of the loop, beyond which
    nothing gets that calls the same functions."""
    name = "streamcp / fastest peer"
    ratios, floors, fastest = [], [], []
    for answers in measured.rounds:
        rates = {one.name: answers[one.name].per_second for one in PEERS if one.name in answers}
        if rates:
            fastest.append(max(rates, key=lambda name: rates[name]))
            ratios.append(answers[STREAMCP.name].per_second / rates[fastest[-1]])
            floors.append(answers[LOOP.name].per_second / rates[fastest[-1]])
    if not ratios:
        return skipped(name, "no peer is installed: python -m benchmarks.peers.install")
    names = ", ".join(sorted(set(fastest)))
    loop = f"{LOOP.name} itself {statistics.median(floors):.3g} ×"
    detail = f"fastest: {names}{_who_is_faster(ratios)}; {loop}"
    return median_row(name, ratios, "×", target=target, detail=detail)


def _who_is_faster(ratios: Sequence[float]) -> str:
    return "; faster than streamcp" if statistics.median(ratios) < 1 else ""


def _peer_rows(peer: Engine, measured: Measured, workload: str, home: Path) -> list[Row]:
    if reason := why_not(peer, measured, workload, home):
        return [skipped(peer.name, reason)]
    ratios = measured.ratios(STREAMCP.name, peer.name)
    faster = _who_is_faster(ratios).removeprefix("; ")
    return [
        _share_row(peer, measured),
        median_row(f"streamcp / {peer.name}", ratios, "×", detail=faster),
    ]


def why_not(peer: Engine, measured: Measured, workload: str, home: Path) -> str | None:
    """Why a peer has no figure, if it has none."""
    if workload not in peer.rates:
        return peer.lacks[workload]
    if not peer.installed_in(home):
        return peer.remedy(home)
    if peer.name in measured.failed:
        return measured.failed[peer.name]
    return None if measured.of(peer.name) else "takes part in none of so few rounds"


def _result_rows(measured: Measured, workload: str) -> list[Row]:
    """One row for each engine that computed something else than arithmetic does, or one for all."""
    wrong = {
        name: f"{answer.records:,} records: {answer.count:,} results with total {answer.total:,}"
        for answers in measured.rounds
        for name, answer in answers.items()
        if (answer.count, answer.total) != expected(workload, answer.records)
    }
    return [check(f"{name}: results are right", False, said) for name, said in wrong.items()] or [
        check("results of every engine are right", True, "as many, and the same total")
    ]


# ---- the benchmarks


async def _rows(
    run: Run[Sizes],
    workload: str,
    beside_peer: float,
    *,
    beside_loop: Target | None = None,
    floor: str = "",
    seconds: float | None = None,
) -> list[Row]:
    measured = await measure(run, workload, floor or workload, seconds or run.sizes.seconds)
    return rows_of(measured, workload, Path(run.sizes.home), at_least(beside_peer), beside_loop)


async def stateless(run: Run[Sizes]) -> Sequence[Row]:
    """How fast is map – filter – map beside the peers?"""
    return await _rows(run, "stateless", 2.0)


async def count(run: Run[Sizes]) -> Sequence[Row]:
    """How fast is a running count per key beside the peers, without checkpoints?"""
    return await _rows(run, "count", 3.0)


async def count_with_checkpoints(run: Run[Sizes]) -> Sequence[Row]:
    """How fast is a running count per key beside the peers, with a checkpoint each second?"""
    return await _rows(
        run,
        "count_with_checkpoints",
        3.0,
        floor="count",
        seconds=run.sizes.checkpointed_seconds,
    )


async def windows(run: Run[Sizes]) -> Sequence[Row]:
    """How fast is a count per key and second of event time beside the peers?"""
    return await _rows(run, "windows", 3.0)


async def calls(run: Run[Sizes]) -> Sequence[Row]:
    """How fast are calls of 5 ms, 100 at a time and in order, beside the peers and a bare pool?"""
    return await _rows(run, "calls", 1.0, beside_loop=at_least(0.97))


def _add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("peers")
    group.add_argument("--peers", metavar="DIR", help="where the peers are installed")
    group.add_argument("--rounds", type=int, metavar="N", help="turns of each engine, peers.* only")


def _resize(sizes: Sizes, options: Any) -> Sizes:
    home, rounds = options.peers or sizes.home, options.rounds or sizes.rounds
    return dataclasses.replace(sizes, home=home, rounds=rounds)


SUITE = Suite(
    "peers",
    {
        "stateless": stateless,
        "count": count,
        "count_with_checkpoints": count_with_checkpoints,
        "windows": windows,
        "calls": calls,
    },
    FULL,
    QUICK,
    _add_options,
    _resize,
    checks_always=True,
)
