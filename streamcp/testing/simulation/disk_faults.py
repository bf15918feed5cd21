"""What goes wrong with a simulated disk: a plan as plain data, and the place in it.

It must not know files. Who takes a fault from the plan carries it out.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Effect: TypeAlias = Literal["none", "part", "whole"]

ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES)
"""Errors that plans are drawn from."""
OPERATIONS = ("open", "write", "fsync", "link", "unlink", "replace", "mkdir", "rmdir", "stat")
"""Operations whose failures plans are drawn from."""


@dataclass(frozen=True, slots=True)
class Operation:
    """The `number`-th operation on a disk (from 1): a system call of `process`.

    `name` is that of the method of `FileSystem`, `path` the first path, or that of the descriptor,
    and `detail` what else there is to say."""

    number: int
    process: str
    name: str
    path: Path
    detail: str = ""

    def __str__(self) -> str:
        """`12 main: write /cp/job/log/.draft 61 bytes`."""
        detail = f" {self.detail}" if self.detail else ""
        return f"{self.number} {self.process}: {self.name} {self.path}{detail}"


@dataclass(frozen=True, slots=True)
class DiskFault:
    """From the `at`-th call (from 1) of `operation` on, `times` calls fail with `error`.

    Only calls whose path contains `path` count. `effect` says what a failing call does all the
    same: nothing, a part of it (of what can be done in parts: writing and fsync), or everything,
    as with an answer that is lost."""

    operation: str
    at: int
    error: int = errno.EIO
    effect: Effect = "none"
    times: int = 1
    path: str = ""

    def concerns(self, operation: Operation) -> bool:
        """Tell whether a call is counted."""
        return self.operation == operation.name and self.path in str(operation.path)

    def __str__(self) -> str:
        """`fsync 3 of log: EIO, effect none`."""
        calls = f"{self.at}" if self.times == 1 else f"{self.at}-{self.at + self.times - 1}"
        of = f" of {self.path}" if self.path else ""
        return f"{self.operation} {calls}{of}: {errno.errorcode[self.error]}, effect {self.effect}"


def draw_fault(rnd: random.Random, *, latest: int = 60) -> DiskFault:
    """Draw a fault of one of the first `latest` calls of an operation."""
    effects: tuple[Effect, ...] = ("none", "part", "whole")
    return DiskFault(
        operation=rnd.choice(OPERATIONS),
        at=rnd.randint(1, latest),
        error=rnd.choice(ERRORS),
        effect=rnd.choice(effects),
        times=rnd.choice((1, 1, 1, 2, 5)),
    )


class FaultPlan:
    """Faults, and how many calls each has counted."""

    def __init__(self, faults: Iterable[DiskFault] = ()) -> None:
        """Begin to count."""
        self._faults = tuple(faults)
        self._counts = [0] * len(self._faults)

    def take(self, operation: Operation) -> DiskFault | None:
        """Count a call; return the fault that it is due, the first one of several."""
        due = None
        for index, fault in enumerate(self._faults):
            if fault.concerns(operation):
                self._counts[index] += 1
                if 0 <= self._counts[index] - fault.at < fault.times:
                    due = due or fault
        return due
