"""Keyed state and timers, and snapshots of them.

State lives in memory, one entry per key. A snapshot refers to the entries and freezes them in the
background; whoever touches an entry first preserves it (copy on consume).
"""
