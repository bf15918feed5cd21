"""How errors are shown, and which exit code they mean.

Of a traceback only the user's own frames are shown: how the framework came to call a function
says nothing about what is wrong in it.
"""

from __future__ import annotations

import select
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console

import streamcp
from streamcp.errors import BuildError, DefinitionError, SettingsError, StreamcpError

DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130

# Not the paths of the packages that a user installs: those lie below the standard library's.
_STANDARD = Path(sysconfig.get_paths()["stdlib"])
_INSTALLED = Path(sysconfig.get_paths()["purelib"])
_FRAMEWORK = Path(streamcp.__file__).parent
_EXAMPLES = _FRAMEWORK / "examples"


class WrongUse(StreamcpError):
    """The command line asks for something that is not there; the message says what is."""


def exit_code(error: BaseException) -> int:
    """Tell which exit code an error means."""
    if isinstance(error, WrongUse | BuildError | DefinitionError | SettingsError):
        return WRONG_USE
    return FAILED


@contextmanager
def shown(*, whole: bool, code: int | None = None) -> Iterator[None]:
    """Show what is raised inside, and leave the command with `code`, or the one it means."""
    try:
        yield
    # The job's module and its functions are user code, and may raise anything.
    except Exception as error:
        if _nobody_reads(error):
            raise  # typer ends the command in silence
        show_error(error, whole=whole)
        raise typer.Exit(exit_code(error) if code is None else code) from None


def _nobody_reads(error: Exception) -> bool:
    """Say whether `error` means only that stdout was closed, as `| head` does."""
    if not isinstance(error, BrokenPipeError):
        return False  # else it may still be a pipe or a socket of the job
    stdout = select.poll()
    stdout.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in stdout.poll(0))


def console() -> Console:
    """Make a console for everything that is not the result of a command."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def show_error(error: BaseException, *, whole: bool = False) -> None:
    """Print an error to stderr: its message, and where in the user's code it arose.

    With `whole` every frame of every error that led to it."""
    out = console()
    if whole:
        out.print("".join(traceback.format_exception(error)).rstrip())
        return
    out.print(f"error: {message(error)}", style="red")
    for line in user_frames(error):
        out.print(line)


def message(error: BaseException) -> str:
    """The text of an error of the framework; of any other one with its class."""
    if isinstance(error, StreamcpError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def user_frames(error: BaseException) -> list[str]:
    """Give the frames of the first cause that lie in the user's code, as a traceback has them."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, StreamcpError):
        return []
    frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if _is_user(frame)]
    return "".join(traceback.format_list(frames)).splitlines()


def _is_user(frame: traceback.FrameSummary) -> bool:
    path = Path(frame.filename)
    if path.is_relative_to(_FRAMEWORK):
        return path.is_relative_to(_EXAMPLES)
    if path.is_relative_to(_STANDARD):
        return path.is_relative_to(_INSTALLED)
    # Of the import system, and of the loops that are made of fused steps.
    return not frame.filename.startswith(("<frozen", "<fused steps"))
