"""How often properties are tried: in CI the examples are the same each time and half as many; and
how often garbage is looked for."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

settings.register_profile(
    "half", settings.get_profile("default"), max_examples=50, derandomize=True, deadline=None
)
if os.environ.get("CI"):
    settings.load_profile("half")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported and collected, millions of objects, is no garbage: to look at it again and
    again was a tenth of all processor time, and more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
