"""What users get may also be made by them, with its types: in a test, for example."""

from __future__ import annotations

import streamcp as sc


def test_generic_classes_can_be_made_with_their_types() -> None:
    assert sc.WindowResult[str, int]("fr", 0, 10, 7) == sc.WindowResult("fr", 0, 10, 7)
    assert sc.Failure[int](3, "fx", "KeyError", "", 1) == sc.Failure(3, "fx", "KeyError", "", 1)
    assert sc.Tag[int]("odd") == sc.Tag("odd")
