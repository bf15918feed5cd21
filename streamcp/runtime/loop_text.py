"""The text of a loop while it is written: nested loops, what becomes of failures, counts.

A failure must tell which step failed at which record, and must cost nothing while there is none.
So each loop has one `try` around everything in it, and the line of the failure tells the step: a
`try` for each step would add two instructions per step and record (decision 0030). Lines that call
no user's code are of no step: what is raised there is raised.

Whatever a loop works with is bound to its names as defaults: CPython finds local names without
looking into a dictionary.

Knows no steps: whoever writes a loop says what its lines are.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import CodeType, FunctionType
from typing import Any

_INDENT = "    "
_NONE = 0


@dataclass(slots=True)
class Line:
    """A line of text, `depth` deep in its loop; `step` numbers the one whose code it calls. Without
    text it is left out."""

    depth: int
    text: str
    step: int = _NONE


@dataclass(slots=True)
class _For:
    """A loop: its first line, what is in it, and what is done where a step of it has failed."""

    head: Line
    body: list[Line | _For] = field(default_factory=list)
    failures: dict[int, list[Line]] = field(default_factory=dict)


@dataclass(slots=True)
class Count:
    """Something that is counted: `name` has the number behind the loop. In the loop `lines` count
    by `variable`, one by one; with a `total` the number is made of that behind the loop."""

    name: str
    variable: str
    total: str = ""
    lines: list[Line] = field(default_factory=list)


class LoopText:
    """A function `work(records)` with one loop over the records, and others in it.

    - `names`: what the text refers to.
    - `before` and `after`: lines before the loop and behind it.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.before: list[str] = []
        self.after: list[str] = []
        self._loops: list[_For] = []
        self._depths: list[int] = []
        self._counts: list[Count] = []
        self._outermost: _For | None = None

    # ---- loops and lines

    @property
    def depth(self) -> int:
        """How many loops are open, one in the other."""
        return len(self._loops)

    @contextmanager
    def loop(self, head: str) -> Iterator[None]:
        """Write what follows into a loop."""
        opened = _For(Line(0, head) if self._outermost is None else self._line(head))
        if self._outermost is None:
            self._outermost = opened
        else:
            self._loops[-1].body.append(opened)
        self._loops.append(opened)
        self._depths.append(0)
        yield
        self._loops.pop()
        self._depths.pop()

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """Write what follows behind an `if` or `else`."""
        self.line(head)
        self._depths[-1] += 1
        yield
        self._depths[-1] -= 1

    def line(self, text: str, step: int = _NONE) -> Line:
        """Write a line; `step` numbers the one of whose failures it may be the place."""
        line = self._line(text, step)
        self._loops[-1].body.append(line)
        return line

    def _line(self, text: str, step: int = _NONE) -> Line:
        return Line(self._depths[-1], text, step)

    def handles(self, step: int) -> bool:
        """Tell whether it was said what is done when a line of `step` fails."""
        return step in self._loops[-1].failures

    def on_failure(self, step: int, *texts: str) -> list[Line]:
        """Say what is done when a line of `step` fails, before what was said already. Behind it the
        loop goes on with its next turn."""
        lines = [Line(0, text) for text in texts]
        self._loops[-1].failures.setdefault(step, [])[:0] = lines
        return lines

    # ---- counts

    def count(self, name: str, variable: str = "", total: str = "") -> Count:
        """Begin to count something."""
        self._counts.append(Count(name, variable or name, total))
        return self._counts[-1]

    def count_by(self, name: str, total: str) -> bool:
        """Count by something that is known behind the loop, and in no turn of it. False if `name`
        is no count of this loop."""
        count = next((one for one in self._counts if one.name == name), None)
        if count is None:
            return False
        for line in count.lines:
            line.text = ""
        count.lines, count.total = [], total
        return True

    # ---- the function

    def compile(self, title: str) -> Callable[[list[Any]], None]:
        """Make the function; `title` names it in tracebacks, where its text is shown."""
        steps: dict[int, int] = {}
        self.names["failing"] = partial(_failing, steps)
        text = "\n".join(self._written(steps)) + "\n"
        namespace = dict(self.names)
        exec(_compiled(text, title), namespace)
        work: FunctionType = namespace["work"]
        # The interpreter adapts code to what it finds: each loop needs its own.
        work.__code__ = work.__code__.replace()
        linecache.cache[title] = (len(text), None, text.splitlines(keepends=True), title)
        return work

    def _written(self, steps: dict[int, int]) -> list[str]:
        """Give all lines, and note in `steps` of which step they are, by their numbers."""
        assert self._outermost is not None
        bound = "".join([f", {name}={name}" for name in self.names])
        zeros = [f"{count.variable} = 0" for count in self._counts if count.lines]
        totals = [f"{count.name} = {count.total}" for count in self._counts if count.total]
        written = [f"def work(records{bound}):"]
        written += [f"{_INDENT}{text}" for text in (*self.before, *zeros)]
        _write(self._outermost, _INDENT, written, steps)
        written += [f"{_INDENT}{text}" for text in (*totals, *self.after)]
        return written


def _write(loop: _For, indent: str, written: list[str], steps: dict[int, int]) -> None:
    indent += _INDENT * loop.head.depth
    written.append(f"{indent}{loop.head.text}")
    inside = f"{indent}{_INDENT}"
    if not loop.failures:
        _write_body(loop, inside, written, steps)
        return
    written.append(f"{inside}try:")
    _write_body(loop, f"{inside}{_INDENT}", written, steps)
    written.append(f"{inside}except Exception as error:")
    written += [f"{inside}{_INDENT}{text}" for text in _handling(loop.failures)]


def _write_body(loop: _For, indent: str, written: list[str], steps: dict[int, int]) -> None:
    before = len(written)
    for one in loop.body:
        if isinstance(one, _For):
            _write(one, indent, written, steps)
        elif one.text:
            written.append(f"{indent}{_INDENT * one.depth}{one.text}")
            if one.step:
                steps[len(written)] = one.step
    if len(written) == before:
        written.append(f"{indent}pass")


def _handling(failures: Mapping[int, Sequence[Line]]) -> list[str]:
    lines = ["step = failing()"]
    word = "if"
    for step, said in failures.items():
        lines.append(f"{word} step == {step}:")
        lines += [f"{_INDENT}{line.text}" for line in said if line.text]
        word = "elif"
    return [*lines, "else:", f"{_INDENT}raise"]


def _failing(steps: Mapping[int, int]) -> int:
    """Number the step whose code has raised what is being handled: by the line of the loop that it
    was called from."""
    traceback = sys.exc_info()[2]
    assert traceback is not None
    return steps.get(traceback.tb_lineno, _NONE)


# The subtasks of a task have loops of one text, and so has a restarted attempt.
@lru_cache(maxsize=256)
def _compiled(text: str, title: str) -> CodeType:
    return compile(text, title, "exec")
