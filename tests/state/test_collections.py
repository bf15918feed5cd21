"""`ListState` and `MapState` are a list and a dict to whoever works with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamcp as sc
from streamcp.state.tables import Part, Table, Tally


@dataclass(frozen=True)
class Frozen:
    number: int


@dataclass
class Mutable:
    number: int


NUMBERS = st.integers(0, 9)
INDEXES = st.integers(-4, 12)
LIST_STEPS = st.one_of(
    st.tuples(st.just("append"), NUMBERS),
    st.tuples(st.just("extend"), st.lists(NUMBERS, max_size=3)),
    st.tuples(st.just("insert"), INDEXES, NUMBERS),
    st.tuples(st.just("set"), INDEXES, NUMBERS),
    st.tuples(st.just("del"), INDEXES),
    st.tuples(st.just("del slice"), INDEXES, INDEXES, st.sampled_from([1, 2, -1])),
    st.tuples(st.just("pop"), INDEXES),
    st.tuples(st.just("reverse")),
    st.tuples(st.just("clear")),
)
KEYS = st.sampled_from("abcde")
MAP_STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, NUMBERS),
    st.tuples(st.just("del"), KEYS),
    st.tuples(st.just("pop"), KEYS),
    st.tuples(st.just("setdefault"), KEYS, NUMBERS),
    st.tuples(st.just("update"), st.dictionaries(KEYS, NUMBERS, max_size=3)),
    st.tuples(st.just("popitem")),
    st.tuples(st.just("clear")),
)


def do(step: tuple[Any, ...], target: Any) -> Any:
    """Do a step of a list or of a dict; what it gives, or the class of what it raises."""
    try:
        match step:
            case ("set", place, value):
                target[place] = value
            case ("del", place):
                del target[place]
            case ("del slice", start, end, by):
                del target[start:end:by]
            case ("popitem",):
                # That of a mapping takes the first one, that of a dict the last.
                return target.pop(next(iter(target))) if target else None
            case (name, *arguments):
                return getattr(target, name)(*arguments)
    except (IndexError, KeyError) as error:
        return type(error)
    return None


@settings(max_examples=200)
@given(st.lists(LIST_STEPS, max_size=30), st.lists(NUMBERS, max_size=8), st.booleans())
def test_list_state_is_a_list(steps: list[tuple[Any, ...]], first: list[int], forked: bool) -> None:
    items, model = sc.ListState(first), [*first]
    if forked:
        items = items._forked()
    for step in steps:
        assert do(step, items) == do(step, model)
        assert items == model
        assert [*items] == model
        assert len(items) == len(model)
        assert items[1:-1] == model[1:-1]
        assert (3 in items) == (3 in model)


@settings(max_examples=200)
@given(st.lists(MAP_STEPS, max_size=30), st.dictionaries(KEYS, NUMBERS), st.booleans())
def test_map_state_is_a_dict_with_the_same_order(
    steps: list[tuple[Any, ...]], first: dict[str, int], forked: bool
) -> None:
    items, model = sc.MapState(first), dict(first)
    if forked:
        items = items._forked()
    for step in steps:
        assert do(step, items) == do(step, model)
        assert items == model
        assert len(items) == len(model)
        assert all((key in items) == (key in model) for key in "abcde")
        assert [*items.items()] == [*model.items()]


@given(st.lists(MAP_STEPS, max_size=20), st.dictionaries(KEYS, NUMBERS))
def test_fork_changes_nothing_until_it_is_merged(
    steps: list[tuple[Any, ...]], first: dict[str, int]
) -> None:
    items, model = sc.MapState(first), dict(first)
    fork = items._forked()
    for step in steps:
        do(step, fork)
        do(step, model)
    assert items == first
    assert [*items] == [*first]
    items._merge(fork)
    assert [*items.items()] == [*model.items()]


@given(
    st.lists(st.one_of(MAP_STEPS, st.just(("cut",))), max_size=40),
    st.integers(0, 5),
)
def test_parts_since_a_cut_make_what_is_there_of_what_was_there(
    steps: list[tuple[Any, ...]], base: int
) -> None:
    items = sc.MapState[str, int]()
    tally = Tally()
    items._table.join("owner", tally, 0)
    cut, stored = 0, Table()
    for step in steps:
        if step == ("cut",):
            cut += 1
            items._table.behind_cut(cut, 0)
            if cut == base:
                stored.apply(items._table.part_since(None))
        else:
            do(step, items)
    stored.apply(items._table.part_since(base if 0 < base <= cut else None))
    assert [(key, stored[key]) for key in stored] == [*items.items()]
    assert tally.entries == len(items)


def test_part_of_a_large_table_holds_what_changed() -> None:
    items = sc.ListState(range(1000))
    items._table.join("owner", Tally(), 0)
    items._table.behind_cut(1, 0)
    items.append(1000)
    items[3] = -3
    del items[0]
    assert items._table.part_since(1) == Part(False, [0], {3: -3}, {1000: 1000})
    assert items._table.part_since(0).whole


@pytest.mark.parametrize("value", [[1], Mutable(1), {1: 2}, (1, [2])])
def test_entry_that_can_be_changed_in_place_is_refused_and_the_remedy_named(value: Any) -> None:
    items, names = sc.ListState[Any](), sc.MapState[str, Any]()
    for change in (
        lambda: items.append(value),
        lambda: items.insert(0, value),
        lambda: names.__setitem__("a", value),
        lambda: sc.ListState([value]),
        lambda: names.update(a=value),
    ):
        with pytest.raises(TypeError, match="frozen dataclasses"):
            change()
    items.append(Frozen(1))
    assert items == [Frozen(1)]


def test_slice_is_replaced_by_as_many() -> None:
    items = sc.ListState([1, 2, 3])
    items[:2] = [5, 6]
    assert items == [5, 6, 3]
    with pytest.raises(ValueError, match="as many"):
        items[:2] = [1]


def test_they_show_what_they_hold() -> None:
    assert repr(sc.ListState([1])) == "ListState([1])"
    assert repr(sc.MapState({"a": 1})) == "MapState({'a': 1})"
    with pytest.raises(TypeError):
        hash(sc.ListState([1]))
