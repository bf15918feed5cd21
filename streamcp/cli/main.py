"""The entry point `streamcp`.

Imports nothing heavy at its top, so that a Ctrl-C is answered from the first moment on. Between
that moment and the start of a job nothing has happened that would have to be kept.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The words of the exit codes are in `errors`, which is heavy.
_DONE, _FAILED, _INTERRUPTED = 0, 1, 130


class _Interrupted(BaseException):
    """A signal came while no job ran. No KeyboardInterrupt: libraries have answers to that."""


def main() -> None:
    """Run the command line and leave the process with its exit code: raises SystemExit."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    code = execute(sys.argv[1:])
    ignore_signals()
    _flush()
    sys.exit(code)


def execute(arguments: Sequence[str]) -> int:
    """Run the command that `arguments` ask for, and return the exit code."""
    try:
        from streamcp.cli.app import app

        app(list(arguments), prog_name="streamcp")
    except SystemExit as end:
        return _code_of(end)
    except _Interrupted:
        if arguments[:1] != ["run"]:
            return _INTERRUPTED
        print("stopped before the job was started", file=sys.stderr)
    return _DONE


def ignore_signals() -> None:
    """No job runs any more: what is being said is said to its end. Without `main` it does nothing:
    the signals of a program that calls `execute` are its own."""
    for number in _SIGNALS:
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:
    ignore_signals()
    raise _Interrupted


def _flush() -> None:
    """Write what was printed, now: at the exit Python would complain that nobody reads it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _code_of(end: SystemExit) -> int:
    """As Python understands it: a text is an error, and is printed."""
    if end.code is None or isinstance(end.code, int):
        return end.code or _DONE
    print(end.code, file=sys.stderr)
    return _FAILED
