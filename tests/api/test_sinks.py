"""The contract of a sink is found when it is described."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.api.sinks import find_sink


class Simple:
    def __init__(self, target: str = "default") -> None:
        self.target = target

    async def write(self, records: Sequence[Any]) -> None: ...


class Staged:
    async def write(self, records: Sequence[Any], transaction: sc.Transaction) -> None: ...
    async def prepare(self, transaction: sc.Transaction) -> str:
        return ""

    async def commit(self, transaction: sc.Transaction, token: str) -> None: ...


class Direct(Staged):
    async def abort(self, transaction: sc.Transaction) -> None: ...


class NeedsTarget(Direct):
    def __init__(self, target: str) -> None:
        self.target = target


async def write(records: Sequence[Any]) -> None: ...


def make_staged() -> Staged:
    return Staged()


FOUND: list[tuple[Any, str, bool]] = [
    (write, "at_least_once", False),
    (partial(write), "at_least_once", False),
    (Simple(), "at_least_once", True),
    (Simple, "at_least_once", False),
    (partial(Simple, "here"), "at_least_once", False),
    (Staged(), "staged", True),
    (Staged, "staged", False),
    (make_staged, "staged", False),
    (Direct(), "transactional", True),
    (Direct, "transactional", False),
    (partial(NeedsTarget, "here"), "transactional", False),
    (lambda: NeedsTarget("here"), "transactional", False),
]


@pytest.mark.parametrize(("sink", "kind", "single"), FOUND)
def test_contract_is_found(sink: Any, kind: str, single: bool) -> None:
    found = find_sink(sink)
    assert (found.kind, found.single) == (kind, single)
    assert hasattr(found.open(), "write")


def test_object_is_shared_and_class_makes_one_each_time() -> None:
    one, each = find_sink(Simple()), find_sink(Simple)
    assert one.open() is one.open()
    assert each.open() is not each.open()


def test_object_with_write_wins_over_its_call() -> None:
    class Both(Simple):
        async def __call__(self, records: Sequence[Any]) -> None: ...

    assert find_sink(Both()).single


class PlainWrite:
    def write(self, records: Sequence[Any]) -> None: ...


def test_plain_write_runs_inline() -> None:
    assert find_sink(PlainWrite).kind == "plain"
    assert find_sink(PlainWrite()).kind == "plain"
    assert find_sink(lambda: PlainWrite()).kind == "plain"


class WithoutTransaction(Staged):
    async def write(self, records: Sequence[Any]) -> None: ...  # type: ignore[override]


class WithoutPrepare:
    async def write(self, records: Sequence[Any], transaction: sc.Transaction) -> None: ...
    async def commit(self, transaction: sc.Transaction, token: str) -> None: ...


class WithoutCommit:
    async def write(self, records: Sequence[Any], transaction: sc.Transaction) -> None: ...
    async def prepare(self, transaction: sc.Transaction) -> None: ...


class CommitWithoutToken(Staged):
    async def commit(self, transaction: sc.Transaction) -> None: ...  # type: ignore[override]


def makes_nothing() -> None: ...


def raises() -> Simple:
    raise OSError("no such host")


def takes_records(records: Sequence[Any]) -> None: ...


REFUSED: list[tuple[Any, str]] = [
    (5, "no sink"),
    ("out/", r"json_lines\('out/'\)"),
    (Path("out"), r"json_lines\('out'\)"),
    (None, "no sink"),
    (object(), "no sink"),
    (print, "for_each"),
    (takes_records, "is a plain function"),
    (sys.stdout, "is an open file"),
    (str, "no write"),
    (NeedsTarget, "lambda: NeedsTarget"),
    (WithoutTransaction, r"write\(records, transaction\)"),
    (WithoutPrepare, "no prepare"),
    (WithoutCommit(), "no commit"),
    (CommitWithoutToken, r"commit\(transaction, token\)"),
    (makes_nothing, "no write"),
    (raises, "raised when it was called"),
]


@pytest.mark.parametrize(("sink", "remedy"), REFUSED)
def test_what_is_no_sink_is_refused_with_the_remedy(sink: Any, remedy: str) -> None:
    with pytest.raises(sc.DefinitionError, match=remedy):
        find_sink(sink)


@pytest.mark.parametrize("sink", [Staged, Direct()])
def test_retry_of_a_transactional_sink_is_refused(sink: Callable[[], Any]) -> None:
    stream = sc.Job("x").source(sc.items([1]))
    with pytest.raises(sc.DefinitionError, match="twice into one transaction"):
        stream.sink(sink, retry=sc.Retry())  # type: ignore[arg-type]
