"""The error tree: one class per thing that a caller can do something about.

Every message names the step, the thing and the remedy. Errors of a user's own function are never
hidden: they are the `__cause__` of a `StepFailed`.
"""

from __future__ import annotations

from collections.abc import Sequence


class StreamcpError(Exception):
    """The root of every error that streamcp raises on purpose."""


class DefinitionError(StreamcpError):
    """A step was described wrongly; raised at the line that describes it."""


class BuildError(StreamcpError):
    """A job cannot be built; holds every problem that was found, each with its place."""

    def __init__(self, job: str, problems: Sequence[str]) -> None:
        """Collect the `problems` of `job` (one or more complete sentences)."""
        self.job = job
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        count = len(self.problems)
        noun = "problem" if count == 1 else "problems"
        super().__init__(f"job {job!r} cannot be built, {count} {noun}:\n{lines}")


class SettingsError(StreamcpError):
    """A setting has an unknown name or a value that it cannot have."""


class MissingExtra(StreamcpError, ImportError):
    """An optional dependency is not installed; the message holds the command that installs it."""


class StepFailed(StreamcpError):
    """A user's function or a connector raised; the original error is the `__cause__`."""


class StrictFailed(StepFailed):
    """`strict=True` has found a record that was changed in place although others have it too, or a
    value of a type that no snapshot can hold. No `on_error` of a step drops or diverts it."""


class JobFailed(StreamcpError):
    """A job ended by a failure that its restart strategy did not (or no longer) answer."""


class SerializationError(StreamcpError):
    """A value cannot be written so that it could be read back, or bytes cannot be read."""


class StorageError(StreamcpError):
    """Checkpoint storage could not be read or written."""


class TransactionLost(StorageError):
    """What a sink wrote to a transaction can never be made durable any more; raised by its `write`
    or `prepare`. The job goes back to its last checkpoint and writes it again."""


class CheckpointDamaged(StorageError):
    """A file of a checkpoint is missing, short or has a wrong checksum; the message names it."""


class CheckpointFailed(StreamcpError):
    """A requested checkpoint did not complete; the message holds its reason."""


class RestoreRefused(StreamcpError):
    """A restore would break a promise (double output, unmatched state); the message says which
    option accepts that."""


class Fenced(StreamcpError):
    """Another copy of the job has taken over; this one must stop and commit nothing."""
