"""What is kept of a record whose step failed, where the step diverts its errors.

Plain values only (rule P37): no exception object, so that a failure can be in a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)  # no slots: Failure[Order](...) could not be made
class Failure(Generic[T_co]):
    """A record that `step` could not work off.

    `error` is the exception as text (`ValueError: no such country`), `traceback` its traceback as
    text, `attempts` the number of calls that were made (1 without a retry).
    """

    record: T_co
    step: str
    error: str
    traceback: str
    attempts: int
