from __future__ import annotations

import io
import logging
from collections.abc import Sequence

import pytest
from rich.console import Console

from streamcp.cli.logs import show_warnings


def _warn(patch: pytest.MonkeyPatch, *, told: bool, own: Sequence[logging.Handler] = ()) -> str:
    """Warn as in a program whose logging has the handlers `own` and no others."""
    logger = logging.getLogger("streamcp")
    patch.setattr(logger, "propagate", False)
    patch.setattr(logger, "handlers", list(own))
    out = io.StringIO()
    show_warnings(Console(file=out, width=100), told=told)
    logging.getLogger("streamcp.storage.local").warning("file %s is odd", "x")
    logging.getLogger("streamcp.runners.life").warning("the job restarts")
    logging.getLogger("streamcp.storage.local").info("nothing")
    return out.getvalue()


def test_warnings_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = _warn(monkeypatch, told=False)
    assert printed == "warning: file x is odd\nwarning: the job restarts\n"


def test_warnings_that_events_tell_are_not_printed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _warn(monkeypatch, told=True) == "warning: file x is odd\n"


def test_logging_of_the_job_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _warn(monkeypatch, told=False, own=[logging.NullHandler()]) == ""
