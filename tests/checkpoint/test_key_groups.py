"""The rows of a frame are told apart by their key groups."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.checkpoint.key_groups import by_group


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1))
def test_every_group_gets_its_rows(counted: list[tuple[int, int]]) -> None:
    rows = [(group, number) for group, count in counted for number in range(count)]
    runs = tuple(itertools.chain.from_iterable(counted))[:-1]
    divided = list(by_group(rows, runs))
    assert [(group, len(own)) for group, own in divided] == counted
    assert [row for _, own in divided for row in own] == rows
    assert all(group == row[0] for group, own in divided for row in own)


def test_fewer_rows_than_the_groups_tell_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 rows, of which the key groups before the last have 3"):
        list(by_group(["a", "b"], (0, 3, 1)))
