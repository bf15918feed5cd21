"""What a snapshot may build on: never on what is not known, never without an end (P16, P39)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamcp.checkpoint.incremental import (
    LONGEST_CHAIN,
    Base,
    base_of_next,
    chain_with,
    outweigh,
)
from streamcp.checkpoint.snapshot import SectionHandle


def section(records: int, number: int = 1) -> SectionHandle:
    file = f"chk-{number:08d}/data-1-1"
    return SectionHandle("state", "count", records, file, 18, (records,), "", ((0,),))


BASE = Base(3, (section(100),))


def test_first_snapshot_is_whole() -> None:
    assert base_of_next(None, known_since=0, changes=0, keys=100) is None


def test_few_changes_build_on_the_newest_complete_snapshot() -> None:
    assert base_of_next(BASE, known_since=3, changes=50, keys=100) is BASE


def test_changes_of_which_some_are_not_known_are_no_snapshot() -> None:
    assert base_of_next(BASE, known_since=4, changes=1, keys=100) is None


def test_changes_of_more_than_half_the_keys_are_written_as_the_whole_state() -> None:
    assert base_of_next(BASE, known_since=1, changes=51, keys=100) is None


def test_chain_with_as_many_changes_as_keys_is_compacted() -> None:
    long = Base(4, (*BASE.chain, section(40, 2), section(40, 3)))
    assert base_of_next(long, known_since=1, changes=20, keys=100) is long
    assert base_of_next(long, known_since=1, changes=21, keys=100) is None


def test_chain_of_many_sections_is_compacted() -> None:
    chain = (section(100), *(section(1, n) for n in range(1, LONGEST_CHAIN)))
    assert base_of_next(Base(4, chain[:-1]), known_since=1, changes=1, keys=100) is not None
    assert base_of_next(Base(4, chain), known_since=1, changes=1, keys=100) is None


def test_snapshot_without_a_change_adds_nothing_to_the_chain() -> None:
    assert chain_with(BASE, section(0)) == BASE.chain
    assert chain_with(BASE, section(1)) == (*BASE.chain, section(1))
    assert chain_with(None, section(0)) == (section(0),)


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 60), st.booleans(), st.integers(0, 5)),
        max_size=80,
    )
)
def test_chain_stays_short_and_below_twice_the_state(
    steps: list[tuple[int, int, bool, int]],
) -> None:
    """Each step: how many keys change and how many there are at the next cut, whether its
    checkpoint completes, and how many cuts ago the changes began to be known."""
    base: Base | None = None
    unwritten = 0
    for cut, (changed, keys, completes, forgotten) in enumerate(steps, start=1):
        unwritten += changed
        chosen = base_of_next(base, known_since=cut - forgotten, changes=unwritten, keys=keys)
        if chosen is not None:
            assert chosen is base
            assert chosen.cut >= cut - forgotten
            assert 2 * unwritten <= keys
        chain = chain_with(chosen, section(keys if chosen is None else unwritten, cut))
        assert len(chain) <= LONGEST_CHAIN
        assert sum(one.records for one in chain[1:]) <= keys
        if completes:
            base, unwritten = Base(cut, chain), 0


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_changes_that_outweigh_the_state_lead_to_a_whole_snapshot(
    changes: int, keys_at_cut: int, new: int
) -> None:
    """Only keys that are new, and those are changes too, can have been added since the cut."""
    if outweigh(changes, keys_at_cut):
        keys = keys_at_cut + min(new, changes)
        assert base_of_next(BASE, known_since=1, changes=changes, keys=keys) is None
