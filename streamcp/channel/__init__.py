"""Bounded channels that a barrier may overtake, and the gates at their ends.

A channel only captures and lets pass: it knows no task, no checkpoint and no event loop. Whoever
waits is woken by the callables that were given to it.
"""
