"""`verify_operator`: a step does the same whatever happens to it between two elements.

Nothing here knows what a step is: it is run in every way there is, and its output is compared.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from streamcp.api.jobs import Job
from streamcp.api.streams import Stream
from streamcp.errors import DefinitionError, StreamcpError
from streamcp.operators.steps import Call
from streamcp.testing.given import GIVEN, Element, Inputs
from streamcp.testing.loop import WaitsForever
from streamcp.testing.operator_runs import SINK, Run, Way
from streamcp.testing.simulation.loop import Style

Order: TypeAlias = Literal["kept", "any"] | Callable[[Any], Hashable]
"""What a step promises of the order of its output: all of it, none, or that of each key, which the
function finds in a record of the output."""

_WAYS = (
    Way("plainly"),
    Way("restored from a snapshot behind every element", "behind"),
    Way("with a full output queue", full=True),
    Way("restored so, with a full output queue", "behind", full=True),
    Way(
        "restored from a snapshot before every element, which came again", "before", mode="aligned"
    ),
)
_INTERLEAVED = _WAYS[2:]
"""What happens in the midst of calls matters most where something waits for them."""
_RESCALED = Way("restored under another parallelism behind every element", "behind", rescaled=True)
_STYLES: tuple[Style, ...] = ("shuffled", "uneven", "held")

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxtuple = 20
_SHORT.maxother = _SHORT.maxstring = 200


def verify_operator(
    add: Callable[..., Stream[Any]],
    given: Iterable[Element],
    expected: Iterable[Any],
    *,
    inputs: int = 1,
    order: Order = "kept",
    rescale: bool = True,
    seeds: Iterable[int] = range(3),
    services: Mapping[Any, Any] | None = None,
    types: Sequence[Any] = (),
) -> None:
    """Require that the step that `add(stream)` puts behind a stream makes `expected` of `given`.

    Whatever the way in which it is run:

    - plainly, element by element;
    - with an unaligned snapshot behind every element, from which a fresh step is restored;
    - with a full output queue: each record that it emits waits until it is asked for;
    - with both: restored behind every element, and between two records of its output;
    - with an aligned snapshot before every element, and a crash behind it, so that it comes again;
    - with `rescale`, restored under another parallelism behind every element. Unless there is an
      order by key, the output then may come in any order;
    - if it calls coroutine functions, with a full output queue and with crashes also under an
      interleaving of the calls for each of `seeds`.

    `given` holds records, or `At(timestamp, record)` and `Watermark(timestamp)` for a step in event
    time; `IdleStatus(True)`, after which the input is idle until its next record (a millisecond
    passes); `EndOfInput()`, which otherwise comes behind everything; `Advance("5s")` for time that
    passes. `On(1, element)` is one of the second input: with `inputs`, `add` gets so many streams.
    `services` are as those of `trial`, `types` as those of `Job`.

    Raises AssertionError that tells the way, the first element behind which the output was another
    one, and what is missing or too many; DefinitionError for what cannot be given."""
    elements = list(given)
    sources = Inputs(elements, inputs)
    verification = _Verification(add, sources, elements, list(expected), order)
    for way in _ways(verification.calls_coroutines, rescale, seeds):
        verification.verify(way, services or {}, types)


def _ways(coroutines: bool, rescale: bool, seeds: Iterable[int]) -> Iterator[Way]:
    yield from _WAYS
    if rescale:
        yield _RESCALED
    for seed in seeds if coroutines else ():
        style = _STYLES[seed % len(_STYLES)]
        for way in _INTERLEAVED:
            name = f"{way.name}, interleaved by seed {seed}"
            yield Way(name, way.cut, way.full, mode=way.mode, style=style, seed=seed)


class _Verification:
    """A step, what it is given, and what is expected of it."""

    def __init__(
        self,
        add: Callable[..., Stream[Any]],
        inputs: Inputs,
        elements: Sequence[Element],
        expected: list[Any],
        order: Order,
    ) -> None:
        self._add = add
        self._inputs = inputs
        self._elements = elements
        self._expected = expected
        self._order = order
        self._plain: list[list[Any]] | None = None

    @property
    def calls_coroutines(self) -> bool:
        """Some function is a coroutine."""
        nodes = self._job(1, ()).graph.nodes
        return any(isinstance(node.spec, Call) and node.spec.calls is not None for node in nodes)

    def verify(self, way: Way, services: Mapping[Any, Any], types: Sequence[Any]) -> None:
        """Run the step in one way; raises AssertionError if it does anything else than expected."""
        run = Run(lambda capacity: self._job(capacity, types), self._inputs, services, way)
        try:
            run.run(self._elements)
        except (StreamcpError, WaitsForever) as error:
            raise AssertionError(f"{self._told(way)} {self._where(run)}: {error}") from error
        if self._plain is None:
            self._plain = run.outputs
        order = "any" if way.rescaled and self._order == "kept" else self._order
        difference = differ(self._expected, run.outputs[-1], order)
        if difference:
            raise AssertionError(f"{self._told(way)}:\n{difference}{self._first(run, way, order)}")

    def _job(self, capacity: int, types: Sequence[Any]) -> Job:
        job = Job("verification", channel_capacity=capacity, types=[*GIVEN, *types])
        out = self._add(*self._inputs.add_to(job))
        if not isinstance(out, Stream):
            raise DefinitionError(
                f"add={self._add!r} returned {out!r}; it has to return the stream whose records "
                "are expected: that of a step, a side output, or the .errors of a sink"
            )
        out.sink(_Never, name=SINK)
        for node in job.graph.nodes:
            node.name = node.label  # a step that has none would be refused with checkpoints
        return job

    def _told(self, way: Way) -> str:
        return f"{self._steps()}, run {way.name}"

    def _steps(self) -> str:
        nodes = self._job(1, ()).graph.nodes[2 * self._inputs.count : -1]
        return " and ".join(f"{node.label} ({node.place})" for node in nodes) or "no step"

    def _where(self, run: Run) -> str:
        if len(run.outputs) < len(self._elements):
            number = len(run.outputs)
            return f"at element {number}, {_SHORT.repr(self._elements[number])}"
        return "at the end of all input"

    def _first(self, run: Run, way: Way, order: Order) -> str:
        """Tell the first element behind which the output differs from that of the plain run."""
        if way.full or self._plain is None or self._plain is run.outputs:
            return ""
        for number, (plain, here) in enumerate(zip(self._plain, run.outputs, strict=True)):
            if differ(plain, here, order):
                at_end = number == len(self._elements)
                element = "the end" if at_end else _SHORT.repr(self._elements[number])
                return (
                    f"\nfirst behind element {number}, {element}\n"
                    f"  plainly: {_SHORT.repr(plain)}\n"
                    f"  here:    {_SHORT.repr(here)}"
                )
        return ""


class _Never:
    """Is replaced in every run."""

    async def write(self, records: Sequence[Any], /) -> None:
        raise NotImplementedError


def differ(expected: list[Any], got: list[Any], order: Order) -> str:
    """Tell in what two outputs differ, as far as the order counts; nothing if they do not."""
    missing, rest = [], list(got)
    for record in expected:
        if record in rest:
            rest.remove(record)
        else:
            missing.append(record)
    lines = [f"  expected: {_SHORT.repr(expected)}", f"  got:      {_SHORT.repr(got)}"]
    if missing:
        lines.append(f"  missing:  {_SHORT.repr(missing)}")
    if rest:
        lines.append(f"  too many: {_SHORT.repr(rest)}")
    if not missing and not rest:
        if _arranged(expected, order) == _arranged(got, order):
            return ""
        lines.append("  the order is another one" + (" within a key" if callable(order) else ""))
    return "\n".join(lines)


def _arranged(records: list[Any], order: Order) -> Any:
    if order == "kept":
        return records
    if order == "any":
        return None
    by_key: dict[Hashable, list[Any]] = {}
    for record in records:
        by_key.setdefault(order(record), []).append(record)
    return by_key
