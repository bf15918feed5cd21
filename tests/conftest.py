"""How often properties are tried: in CI the examples are the same each time and half as many."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile(
    "half", settings.get_profile("default"), max_examples=50, derandomize=True, deadline=None
)
if os.environ.get("CI"):
    settings.load_profile("half")
