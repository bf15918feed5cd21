"""Names that are written and read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.identifiers import ChannelId, SubtaskId

subtasks = st.builds(SubtaskId, st.text("ab[]() ->", max_size=6), st.integers(0, 20))


@given(st.builds(SubtaskId, st.text("ab[]()", max_size=6), st.integers(0, 20)), subtasks, st.text())
def test_text_of_a_channel_is_read_back(sender: SubtaskId, receiver: SubtaskId, edge: str) -> None:
    channel = ChannelId(sender, receiver, edge)
    assert ChannelId.parse(str(channel), receiver) == channel


@pytest.mark.parametrize("text", ["", "a[0] -> c[0] (x)", "a -> b[0] (x)", "a[0] -> b[0] (x"])
def test_other_text_is_no_channel(text: str) -> None:
    with pytest.raises(ValueError, match="names no channel"):
        ChannelId.parse(text, SubtaskId("b", 0))
