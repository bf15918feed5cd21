"""House rules that no ready tool checks, read from the syntax trees.

Each rule is a function from one file to the lines that break it, and has a bad example below,
so that a rule that no longer sees anything fails.
"""

from __future__ import annotations

import ast
import functools
import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Tasks are started by task groups only, so that every task has a parent and every error reaches it.
UNOWNED_TASKS = {
    f"asyncio.{name}" for name in ("create_task", "ensure_future", "gather", "wait_for")
}
CLOCKS = {
    f"time.{name}{suffix}"
    for name in ("time", "monotonic", "perf_counter")
    for suffix in ("", "_ns")
}
SLEEPS = {"asyncio.sleep", "anyio.sleep"}
BROAD = {"Exception", "BaseException"}
LONGEST_FUNCTION = 50


@dataclass(frozen=True)
class SourceFile:
    """One parsed file; `name` is relative to the checkout."""

    name: str
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree: every rule goes through them."""
        return [*ast.walk(self.tree)]


Rule = Callable[[SourceFile], Iterable[int]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def _files(folder: str) -> list[SourceFile]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [
        SourceFile(p.relative_to(ROOT).as_posix(), p.read_text(encoding="utf-8")) for p in paths
    ]


def _broken(rule: Rule, files: Iterable[SourceFile]) -> list[str]:
    return [f"{file.name}:{line}" for file in files for line in rule(file)]


def _references(file: SourceFile) -> Iterator[tuple[str, ast.AST]]:
    """Every dotted or imported name, `from time import time` as `time.time`."""
    for node in file.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}", node
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node


def _lines_naming(file: SourceFile, banned: set[str]) -> list[int]:
    return [node.lineno for name, node in _references(file) if name in banned]  # type: ignore[attr-defined]


def unowned_tasks(file: SourceFile) -> Iterable[int]:
    return _lines_naming(file, UNOWNED_TASKS)


def clock_readings(file: SourceFile) -> Iterable[int]:
    return [] if file.name == "streamcp/clock.py" else _lines_naming(file, CLOCKS)


def _is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in BROAD) for kind in kinds)


def _only_cleans_up(handler: ast.ExceptHandler) -> bool:
    """The half step is undone and the error goes on: nothing is hidden."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def _has_reason(lines: list[str], number: int) -> bool:
    """A comment with words of its own on the line, before or after it; `noqa` is no reason."""
    for line in lines[max(0, number - 2) : number + 1]:
        comment = line.partition("#")[2]
        if len(re.findall(r"\w+", re.sub(r"noqa(: *[A-Z0-9, ]+)?", "", comment))) >= 3:
            return True
    return False


def broad_excepts_without_reason(file: SourceFile) -> Iterable[int]:
    lines = file.text.splitlines()
    handlers = [node for node in file.nodes if isinstance(node, ast.ExceptHandler)]
    hiding = [
        handler for handler in handlers if _is_broad(handler) and not _only_cleans_up(handler)
    ]
    return [handler.lineno for handler in hiding if not _has_reason(lines, handler.lineno)]


def missing_module_docstring(file: SourceFile) -> Iterable[int]:
    said = ast.get_docstring(file.tree) or ""
    return [] if len(said.split()) >= 4 else [1]


@functools.cache
def in_virtual_time(folder: Path) -> bool:
    """The folder's tests run in a loop whose timers take no time (`recovery.world` makes one)."""
    marks = ("VirtualTimeLoop", "SimulatedLoop", "recovery.world")
    return any(mark in other.read_text() for other in folder.glob("*.py") for mark in marks)


def real_sleeps(file: SourceFile) -> Iterable[int]:
    virtual = in_virtual_time((ROOT / file.name).parent)
    for node in file.nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = ast.unparse(node.func)
        waits = (
            bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value != 0
        )
        if name == "time.sleep" or (name in SLEEPS and waits and not virtual):
            yield node.lineno


def _length(function: Function) -> int:
    """Lines of the function without its decorators and docstring."""
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    told = (docstring.end_lineno or 0) - docstring.lineno + 1 if docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - told


def _functions(file: SourceFile) -> list[Function]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in file.nodes if isinstance(node, kinds)]


def too_long_functions(file: SourceFile) -> Iterable[int]:
    return [f.lineno for f in _functions(file) if _length(f) > LONGEST_FUNCTION]


PACKAGE_RULES: list[Rule] = [
    unowned_tasks,
    clock_readings,
    broad_excepts_without_reason,
    missing_module_docstring,
    too_long_functions,
]


@pytest.mark.parametrize("rule", PACKAGE_RULES)
def test_package_keeps_the_rule(rule: Rule) -> None:
    assert _broken(rule, _files("streamcp")) == []


def test_tests_never_wait_for_real_time() -> None:
    assert _broken(real_sleeps, _files("tests")) == []


def test_functions_are_short() -> None:
    """Median at most 7 lines, nine of ten at most 25 (without docstrings)."""
    lengths = [_length(function) for file in _files("streamcp") for function in _functions(file)]
    assert statistics.median(lengths) <= 7
    assert statistics.quantiles(lengths, n=10)[-1] <= 25


BAD: list[tuple[Rule, str]] = [
    (unowned_tasks, "import asyncio\nasyncio.create_task(work())"),
    (unowned_tasks, "from asyncio import gather"),
    (clock_readings, "import time\nnow = time.monotonic()"),
    (clock_readings, "from time import time"),
    (broad_excepts_without_reason, "try:\n    work()\nexcept Exception:\n    pass"),
    (broad_excepts_without_reason, "try:\n    work()\nexcept (OSError, BaseException):\n    pass"),
    (broad_excepts_without_reason, "try:\n    work()\nexcept Exception:  # noqa: BLE001\n    pass"),
    (missing_module_docstring, '"""."""'),
    (too_long_functions, "def long():\n" + "    work()\n" * (LONGEST_FUNCTION + 1)),
    (real_sleeps, "import asyncio\nasync def wait():\n    await asyncio.sleep(0.1)"),
    (real_sleeps, "import time\ntime.sleep(delay)"),
]


@pytest.mark.parametrize(("rule", "text"), BAD)
def test_bad_example_breaks_the_rule(rule: Rule, text: str) -> None:
    assert list(rule(SourceFile("streamcp/example.py", text))) != []


GOOD: list[tuple[Rule, str]] = [
    (unowned_tasks, "group.create_task(work())"),
    (
        broad_excepts_without_reason,
        "try:\n    work()\n# A user's function may raise anything.\nexcept Exception:\n    pass",
    ),
    (
        broad_excepts_without_reason,
        "try:\n    work()\nexcept BaseException:\n    undo()\n    raise",
    ),
    (real_sleeps, "import asyncio\nasync def turn():\n    await asyncio.sleep(0)"),
]


@pytest.mark.parametrize(("rule", "text"), GOOD)
def test_good_example_keeps_the_rule(rule: Rule, text: str) -> None:
    assert list(rule(SourceFile("streamcp/example.py", text))) == []
