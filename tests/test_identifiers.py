from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamcp.identifiers import KeptTransactions, TransactionId

attempts = st.integers(min_value=1, max_value=10**6)


@given(st.text(), st.text(), attempts, attempts)
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
