"""What `strict=True` adds to the calls of users' functions, and to where records go.

`Lenient` adds nothing: it gives back what it gets, when the tasks are wired, so that a job without
`strict` pays nothing. `Strict` finds two things where they happen, and before a snapshot is wrong
by them: records that were changed in place although another reader has them too, and values of
types that no snapshot can hold.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from streamcp.errors import SerializationError, StrictFailed
from streamcp.graph.logical import Node
from streamcp.operators.steps import Shortcuts
from streamcp.runtime.calling import Push, expanded, shown
from streamcp.runtime.shared_records import SharedRecords, Watched
from streamcp.serialization.immutable import LEAF_TYPES, is_deeply_immutable
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer

Function = Callable[..., Any]


class Lenient:
    """Looks at nothing. Each method says what `Strict` makes of its argument."""

    def function(self, node: Node, fn: Function, *, many: bool = False) -> Function:
        """A function of a step; with `many` it gives several values, and may be a generator."""
        return fn

    def folding(self, node: Node, fn: Function) -> Function:
        """`fn(value, record)`, which makes the next value: it is emitted, and kept."""
        return fn

    def first(self, node: Node) -> Function | None:
        """What takes the first record of a key as its value, if that is to be called at all."""
        return None

    def keyed(self, node: Node, fn: Function) -> Function:
        """`fn(record or time, state, ..., context)` of a keyed step."""
        return fn

    def shortcuts(self, shortcuts: Shortcuts | None) -> Shortcuts | None:
        """What does for most calls what the functions of a keyed step do."""
        return shortcuts

    def changing(self, node: Node, fn: Function) -> Function:
        """`fn(record, shared, ...)`, which changes a broadcast state."""
        return fn

    def coroutine(self, node: Node, fn: Function) -> Function:
        """A coroutine function of a step, or of a sink."""
        return fn

    def keyed_coroutine(self, node: Node, fn: Function) -> Function:
        """`fn(record or time, state, context)` of a keyed step, which gives a list."""
        return fn

    def key(self, node: Node, fn: Function) -> Function:
        """The key function of a step."""
        return fn

    def exchanged(self, node: Node, fn: Function) -> Function:
        """The key function by which the records of a step travel."""
        return fn

    def travelling(self, node: Node, push: Push) -> Push:
        """What takes the records of a step to where a snapshot may find them."""
        return push

    def shared(self, node: Node, readers: Sequence[str], push: Push) -> Push:
        """What takes the records of a step to several `readers`."""
        return push

    def look(self, node: Node, records: Iterable[Any]) -> None:
        """Look at records of a step that a snapshot may find."""


class Strict(Lenient):
    """Looks at everything; raises StrictFailed. With `snapshots` also at types."""

    def __init__(self, registry: TypeRegistry, serializer: Serializer, *, snapshots: bool) -> None:
        self._records = SharedRecords(registry)
        self._serializer = serializer
        self._snapshots = snapshots
        self._seen: set[tuple[str, type]] = set()

    # ---- calls

    def function(self, node: Node, fn: Function, *, many: bool = False) -> Function:
        """Look before and after each call at what it gets."""

        def call(*arguments: Any) -> Any:
            watched = self._before(node, arguments)
            try:
                return expanded(fn(*arguments)) if many else fn(*arguments)
            finally:
                self._after(node, watched)

        return call

    def folding(self, node: Node, fn: Function) -> Function:
        """Look also whether the old value, which was emitted, stays what it was."""

        def call(value: Any, record: Any) -> Any:
            watched = [*self._before(node, (value, record)), *self._old_value(node, value)]
            try:
                result = fn(value, record)
            finally:
                self._after(node, watched)
            return self._kept(node, result)

        return call

    def first(self, node: Node) -> Function | None:
        """The first record of a key is emitted and kept, too."""
        return lambda record: self._kept(node, record)

    def keyed(self, node: Node, fn: Function) -> Function:
        """Look also at what is emitted and stays in the state."""

        def call(record: Any, state: Any, *others: Any) -> Any:
            watched = self._before(node, (record, state))
            try:
                results = expanded(fn(record, state, *others))
            finally:
                self._after(node, watched)
            self._called(node, state, results, others[-1])
            return results

        return call

    def shortcuts(self, shortcuts: Shortcuts | None) -> Shortcuts | None:
        """None: all calls are looked at."""
        return None

    def changing(self, node: Node, fn: Function) -> Function:
        """Look also at the type of the state."""
        looking = self.function(node, fn, many=True)

        def call(record: Any, shared: Any, *others: Any) -> Any:
            results = looking(record, shared, *others)
            self.look(node, (shared,))
            return results

        return call

    def coroutine(self, node: Node, fn: Function) -> Function:
        """Look before and after each call at what it gets, and at what it gives."""

        async def call(*arguments: Any) -> Any:
            watched = self._before(node, arguments)
            try:
                result = await _begun(fn, arguments)
            finally:
                self._after(node, watched)
            self.look(node, result if isinstance(result, list) else (result,))
            return result

        return call

    def keyed_coroutine(self, node: Node, fn: Function) -> Function:
        """Look also at what is emitted and stays in the state."""

        async def call(record: Any, state: Any, *others: Any) -> Any:
            watched = self._before(node, (record, state))
            try:
                results = await _begun(fn, (record, state, *others))
            finally:
                self._after(node, watched)
            self._called(node, state, results, others[-1])
            self.look(node, results)
            return results

        return call

    def _called(self, node: Node, state: Any, results: Sequence[Any], context: Any) -> None:
        """A keyed function has returned: what it emits may be in the state, which stays unless it
        was cleared."""
        self.look(node, (state,))
        effects = context._effects
        if not effects.cleared:
            emitted = [*results, *(value for _, value in effects.sides)]
            rest = [value for value in emitted if value is not state]  # refused elsewhere
            self._records.watch_common(rest, state, _in_state(node))

    def _kept(self, node: Node, value: Any) -> Any:
        self.look(node, (value,))
        self._records.watch(value, _in_state(node))
        return value

    def _old_value(self, node: Node, value: Any) -> list[Watched]:
        content = None if is_deeply_immutable(value) else self._records.content(value)
        return [] if content is None else [Watched(value, content, "it was emitted before")]

    def _before(self, node: Node, arguments: Sequence[Any]) -> list[Watched]:
        watched = self._records.watched_in(arguments[:2])
        changed = self._records.changed(watched)
        if changed is not None:
            raise StrictFailed(
                f"{told(node)} gets a record that was changed in place since another one had it, "
                f"{changed.whose}: {shown(changed.value)}; by whom is not known: a function that "
                "has kept it, or its source; emit a new object for each record (strict=True)"
            )
        return watched

    def _after(self, node: Node, watched: Iterable[Watched]) -> None:
        changed = self._records.changed(watched)
        if changed is not None:
            raise StrictFailed(
                f"{told(node)} has changed a record in place that it does not have alone, "
                f"{changed.whose}: it is now {shown(changed.value)}; return a changed copy, e.g. "
                "dataclasses.replace(record, ...) or record | {...} (strict=True)"
            )

    # ---- where records go

    def shared(self, node: Node, readers: Sequence[str], push: Push) -> Push:
        """Watch the records from now on."""
        whose = f"{told(node)} gives it to {' and '.join(readers)}"

        def handed_on(records: list[Any]) -> None:
            for record in records:
                self._records.watch(record[0] if node.timed else record, whose)
            push(records)

        return handed_on

    def travelling(self, node: Node, push: Push) -> Push:
        """Look at the types of the records."""

        def handed_on(records: list[Any]) -> None:
            self.look(node, (record[0] for record in records) if node.timed else records)
            push(records)

        return handed_on if self._snapshots else push

    def key(self, node: Node, fn: Function) -> Function:
        """Look at the types of keys, which are in the state."""

        def key(record: Any) -> Any:
            found = fn(record)
            self.look(node, (found,))
            return found

        return key if self._snapshots else fn

    def exchanged(self, node: Node, fn: Function) -> Function:
        """Look at the types of the records."""

        def key(record: Any) -> Any:
            self.look(node, (record,))
            return fn(record)

        return key if self._snapshots else fn

    def look(self, node: Node, records: Iterable[Any]) -> None:
        """Look at one value of each type, per step: whether a snapshot can hold it."""
        for value in records if self._snapshots else ():
            cls = type(value)
            if cls not in LEAF_TYPES and (node.label, cls) not in self._seen:
                self._seen.add((node.label, cls))
                self._write(node, value)

    def _write(self, node: Node, value: Any) -> None:
        try:
            self._serializer.dumps(value, step=node.label)
        except SerializationError as error:
            raise StrictFailed(f"{error} ({told(node)}; strict=True)") from error


def told(node: Node) -> str:
    """`step 'rate' (jobs.py:12)`."""
    return f"step {node.label!r} ({node.place})"


def _in_state(node: Node) -> str:
    return f"{told(node)} has emitted it and keeps it in its state"


def _begun(fn: Function, arguments: tuple[Any, ...]) -> Awaitable[Any]:
    begun: Awaitable[Any] = fn(*arguments)
    return begun
