"""Names that are written and read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.identifiers import ChannelId, KeptTransactions, SubtaskId, TransactionId

subtasks = st.builds(SubtaskId, st.text("ab[]() ->", max_size=6), st.integers(0, 20))


@given(st.builds(SubtaskId, st.text("ab[]()", max_size=6), st.integers(0, 20)), subtasks, st.text())
def test_text_of_a_channel_is_read_back(sender: SubtaskId, receiver: SubtaskId, edge: str) -> None:
    channel = ChannelId(sender, receiver, edge)
    assert ChannelId.parse(str(channel), receiver) == channel


@pytest.mark.parametrize("text", ["", "a[0] -> c[0] (x)", "a -> b[0] (x)", "a[0] -> b[0] (x"])
def test_other_text_is_no_channel(text: str) -> None:
    with pytest.raises(ValueError, match="names no channel"):
        ChannelId.parse(text, SubtaskId("b", 0))


@given(st.text(), st.text(), st.integers(1, 10**6), st.integers(1, 10**6))
def test_transactions_of_this_and_later_attempts_are_kept_and_earlier_ones_by_name(
    job: str, sink: str, own: int, other: int
) -> None:
    text = str(TransactionId(job, sink, 0, other, 3))
    named = str(TransactionId(job, sink, 1, own - 1, 0))
    kept = KeptTransactions([named], own)
    assert (text in kept) == (other >= own or text == named)
    assert named in kept
    assert list(kept) == [named]
    assert len(kept) == 1


def test_text_that_is_no_transaction_is_kept() -> None:
    assert "somebody else's" in KeptTransactions([], 5)
