"""`call_id`: what a coroutine function may know of the call that it is in.

A context variable holds who is to be asked; the runtime sets it once per worker.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeAlias

OwnCall: TypeAlias = Callable[[], str]
"""Gives the id of the call that is being made."""

OWN_CALL: Final[ContextVar[OwnCall | None]] = ContextVar("streamcp own call", default=None)


def call_id() -> str:
    """Return the idempotency key of the call that this is called in: the same text when the call
    is made again, by a retry or after a restore, and another one for every other call.

    Made of the step and the content of the record. Send it to a service that recognizes by it a
    request that it has had. Ask for it before the first await. Several requests in one call need
    something of their own added to it.

    Raises RuntimeError outside of the coroutine function of a `map`, `filter`, `flat_map`,
    `for_each` or `process`, and SerializationError for a record that no snapshot could hold."""
    own = OWN_CALL.get()
    if own is None:
        raise RuntimeError(
            "call_id() is for the coroutine function of a map, filter, flat_map, for_each or "
            "process, while it is called: a plain function, a sink and a source have no call ids"
        )
    return own()
