"""State machines whose snapshots have frames of a few rows or of many, so that a small state, too,
is frozen in steps."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from streamcp.state import keyed_snapshot

CHUNK = keyed_snapshot.CHUNK


class DrawnFrames(RuleBasedStateMachine):
    """Draws how many rows are frozen together."""

    @initialize(rows=st.sampled_from([2, CHUNK]))
    def draw_frames(self, rows: int) -> None:
        keyed_snapshot.CHUNK = rows

    def teardown(self) -> None:
        keyed_snapshot.CHUNK = CHUNK
