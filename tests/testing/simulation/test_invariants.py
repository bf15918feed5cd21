"""What the checks of a simulated run compare."""

from __future__ import annotations

from collections import Counter

from streamcp.testing.simulation.invariants import _untagged


def test_rows_that_differ_in_their_tags_alone_are_counted_together() -> None:
    rows = Counter({(0, "a", (1,), "16"): 2, (0, "a", (1,), "17#twice"): 1, (0, "b", (1,), ""): 1})
    assert _untagged(rows) == {(0, "a", (1,)): 3, (0, "b", (1,)): 1}
