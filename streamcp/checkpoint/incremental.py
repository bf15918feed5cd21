"""What a snapshot of keyed state may build on, and when it is written whole (rules P16 and P39).

Facts in, decision out. Invariants: a snapshot refers only to sections of checkpoints that are
complete when it is taken; the changes that it adds are all those since the one that it builds on;
and what has to be read at a restore stays below twice the state, in a bounded number of sections.
It knows no entries: whoever keeps the changes says how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamcp.checkpoint.snapshot import SectionHandle

LONGEST_CHAIN = 20
"""Sections that one state consists of, at most: each is another file to be opened at a restore, and
one whole section in so many costs little beside the changes."""


@dataclass(frozen=True, slots=True)
class Base:
    """A snapshot of one keyed state whose checkpoint is complete.

    `cut` is its number among the snapshots of that state, which only grows. `chain` are the
    sections that hold it, to be read in their order: the whole state, then changes."""

    cut: int
    chain: tuple[SectionHandle, ...]


def base_of_next(newest: Base | None, *, known_since: int, changes: int, keys: int) -> Base | None:
    """Choose what the next snapshot of a state builds on; None: it is written whole.

    `newest` is the snapshot in the newest complete checkpoint. The changes since cut
    `known_since` and later ones are known; `changes` of them since `newest`, removals included.
    `keys` is the size of the state now. Written whole is what is not known, and what would not
    pay: more changes than half the keys, or more than all of them in the chain together."""
    if newest is None or newest.cut < known_since or len(newest.chain) >= LONGEST_CHAIN:
        return None
    chained = changes + sum(section.records for section in newest.chain[1:])
    return None if 2 * changes > keys or chained > keys else newest


def outweigh(changes: int, keys_at_cut: int) -> bool:
    """Say whether there are so many changes that more need not be noted, and the next snapshot is
    written whole: as many as the state had keys at the last cut."""
    return changes > keys_at_cut


def chain_with(base: Base | None, own: SectionHandle) -> tuple[SectionHandle, ...]:
    """List the sections that hold a state, after `own` was written upon `base`. What changed
    nothing adds nothing, so that a state that rests is never written again."""
    if base is None:
        return (own,)
    return (*base.chain, own) if own.records else base.chain
