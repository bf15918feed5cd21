"""What makes a logical graph impossible to build; all problems are found together (rule 13).

Every problem is one sentence that begins with the place of the step and names the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamcp.errors import BuildError
from streamcp.graph.logical import Connection, Forward, LogicalGraph, Node, told
from streamcp.graph.physical import effective_parallelism, reachable
from streamcp.graph.time_problems import find_time_problems
from streamcp.operators.steps import (
    BatchStep,
    BroadcastStep,
    Call,
    CountStep,
    ForEachStep,
    IterateStep,
    MachineStep,
    ProcessStep,
    ReduceStep,
    ScanStep,
    SinkStep,
    SourceStep,
)

_STATEFUL = (BatchStep, ReduceStep, ScanStep, CountStep, ProcessStep, BroadcastStep)
_ENDS = (SinkStep, ForEachStep)


def validate(
    graph: LogicalGraph,
    *,
    checkpoints: bool,
    at_least_once: bool = False,
    overlapping: bool = False,
) -> None:
    """Raise BuildError with every problem of `graph`; `checkpoints` says whether they are on,
    `at_least_once` whether the job is so as a whole (rule P29), `overlapping` whether several
    checkpoints may run at a time (rule P10)."""
    problems = [*find_problems(graph, checkpoints=checkpoints)]
    if at_least_once:
        problems += _exactly_once_sinks(graph)
    if at_least_once or not checkpoints:
        problems += _journaled(graph, checkpoints=checkpoints)
    if overlapping:
        problems += _loops_of_overlapping(graph)
    if problems:
        raise BuildError(graph.job, problems)


def find_problems(graph: LogicalGraph, *, checkpoints: bool) -> Iterator[str]:
    """Give the problems one by one, in the order of the steps within each kind."""
    yield from _ends(graph)
    yield from _foreign_inputs(graph)
    yield from _same_names(graph)
    if checkpoints:
        yield from _unnamed(graph)
    yield from _parallelism(graph)
    yield from _errors(graph)
    yield from _loops(graph)
    yield from find_time_problems(graph)


def _ends(graph: LogicalGraph) -> Iterator[str]:
    if not any(isinstance(node.spec, SourceStep) for node in graph.nodes):
        yield "it has no source: begin with job.source(...)"
    if not any(isinstance(node.spec, _ENDS) for node in graph.nodes):
        yield "it has no sink, so nothing would come out: end with .sink(...) or .for_each(...)"


def _exactly_once_sinks(graph: LogicalGraph) -> Iterator[str]:
    """One problem for all of them: there is one setting to be changed."""
    sinks = [
        node for node in graph.nodes if isinstance(node.spec, SinkStep) and node.spec.exactly_once
    ]
    if sinks:
        yield (
            f"{', '.join(map(told, sinks))}: an exactly-once sink cannot keep its promise in "
            'Checkpoints(mode="at_least_once"), where records are processed again after a '
            "restore; choose another mode, or a sink that only writes: a coroutine function of "
            "the records"
        )


def _journaled(graph: LogicalGraph, *, checkpoints: bool) -> Iterator[str]:
    """One problem for all of them: there is one setting to be changed."""
    steps = [node for node in graph.nodes if isinstance(node.spec, Call) and node.spec.is_journaled]
    if not steps:
        return
    named = ", ".join(map(told, steps))
    if checkpoints:
        yield (
            f'{named}: journal=True cannot keep its promise in Checkpoints(mode="at_least_once"), '
            "where records are processed, and their calls made, again after a restore; choose "
            "another mode, or leave journal= out"
        )
    else:
        yield (
            f"{named}: journal=True needs checkpoints, which say from where a job goes on and when "
            'an answer is needed no more; give the job checkpoints=sc.Checkpoints(to="…") '
            "(--checkpoints DIR), or leave journal= out"
        )


def _foreign_inputs(graph: LogicalGraph) -> Iterator[str]:
    own = {id(node) for node in graph.nodes}
    for node in graph.nodes:
        for connection in node.inputs:
            if id(connection.node) not in own:
                yield (
                    f"{told(node)} reads {told(connection.node)}, which belongs to another job; "
                    "only streams of one job can be joined"
                )


def _same_names(graph: LogicalGraph) -> Iterator[str]:
    first: dict[str, Node] = {}
    for node in graph.nodes:
        earlier = first.setdefault(node.label, node)
        if earlier is not node:
            yield (
                f"{told(node)} has the same name as {told(earlier)}; names are unique in a job"
                + _notebook_hint(node)
            )


def _notebook_hint(node: Node) -> str:
    in_notebook = "ipykernel" in node.place.file or node.place.file.startswith("<ipython")
    return " (in a notebook: create the Job in the same cell as its steps)" if in_notebook else ""


def _unnamed(graph: LogicalGraph) -> Iterator[str]:
    taken = {node.label for node in graph.nodes}
    for node in graph.nodes:
        reason = _kept_in_checkpoints(node)
        if node.name is None and reason is not None:
            name = _free_name(node, taken)
            yield (
                f"{told(node)} needs a name, because {reason} in a checkpoint: write "
                f'{node.verb}(…, name="{name}")'
            )


def _kept_in_checkpoints(node: Node) -> str | None:
    if isinstance(node.spec, SourceStep):
        return "its position is found by name"
    if isinstance(node.spec, _STATEFUL):
        return "its state is found by name"
    if isinstance(node.spec, SinkStep) and node.spec.kind != "plain":
        return "its transactions and pending records are found by name"
    if isinstance(node.spec, IterateStep):
        return "what goes round in it is found by name"
    if isinstance(node.spec, Call) and node.spec.calls is not None:
        return "its pending records are found by name"
    return None


def _free_name(node: Node, taken: set[str]) -> str:
    """Propose a name after the user's function, else after the verb."""
    function = getattr(node.spec, "fn", None) or getattr(node.spec, "source", None)
    if isinstance(node.spec, MachineStep):
        function = None  # it is no function of the user
    word = getattr(function, "__name__", None) or getattr(function, "name", None) or node.verb
    base = word if isinstance(word, str) and word.isidentifier() else node.verb
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}-{count}"
    taken.add(name)
    return name


def _parallelism(graph: LogicalGraph) -> Iterator[str]:
    for node in graph.nodes:
        subtasks = effective_parallelism(graph, node)
        if isinstance(node.spec, SourceStep) and node.spec.source.splits is None and subtasks > 1:
            yield (
                f"{told(node)} has parallelism {subtasks}, but the source "
                f"{node.spec.source.name} has no splits to divide; write @source(splits=...), or "
                "leave parallelism= out"
            )
        yield from _forward_between_different(graph, node)


def _forward_between_different(graph: LogicalGraph, node: Node) -> Iterator[str]:
    own = effective_parallelism(graph, node)
    for connection in node.inputs:
        theirs = effective_parallelism(graph, connection.node)
        if isinstance(connection.exchange, Forward) and theirs != own:
            yield (
                f"{told(node)} has parallelism {own}, its {_end(connection)} has "
                f"{theirs}; say how the records are divided: .rebalance() or .key_by(...) between "
                "them, or the same parallelism" + _sink_hint(node)
            )


def _end(connection: Connection) -> str:
    word = "feedback" if connection.back else "input"
    return f"{word} {told(connection.node)}"


def _sink_hint(node: Node) -> str:
    if not isinstance(node.spec, SinkStep) or node.parallelism != 1:
        return ""
    return " (a sink that is one object has parallelism 1; its class makes one per subtask)"


def _errors(graph: LogicalGraph) -> Iterator[str]:
    read = {
        id(connection.node)
        for node in graph.nodes
        for connection in node.inputs
        if connection.output == "errors"
    }
    for node in graph.nodes:
        diverts = getattr(node.spec, "on_error", None) == "divert"
        if diverts and id(node) not in read:
            yield (
                f"{told(node)} diverts its errors, but nobody reads them: give its .errors a "
                'sink, or write on_error="drop"'
            )
        if not diverts and id(node) in read:
            yield f'{told(node)} does not divert, but its .errors is read: write on_error="divert"'


def _loops(graph: LogicalGraph) -> Iterator[str]:
    """What keeps a loop from going round, or from ending (P19)."""
    before = {node: [connection.node for connection in node.inputs] for node in graph.nodes}
    behind: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for sender in before[node]:
            behind.setdefault(sender, []).append(node)
    for head in graph.nodes:
        if isinstance(head.spec, IterateStep):
            inside = reachable(head, behind)
            yield from _feedback(head, inside)
            leading_back = reachable(head, before)
            yield from _members(head, inside & leading_back)
            if not any(isinstance(node.spec, _ENDS) for node in inside):
                yield (
                    f"{told(head)}: nothing that leaves the loop is read: give what it returns "
                    "a .sink(...) or .for_each(...)"
                )


def _loops_of_overlapping(graph: LogicalGraph) -> Iterator[str]:
    """The head of a loop captures its back edges for one checkpoint at a time."""
    loops = [node for node in graph.nodes if isinstance(node.spec, IterateStep)]
    if loops:
        yield (
            f"{', '.join(map(told, loops))}: a barrier goes round in a loop before the next one "
            "may come; leave Checkpoints(max_concurrent=) at 1"
        )


def _feedback(head: Node, inside: set[Node]) -> Iterator[str]:
    for connection in head.inputs:
        if not connection.back:
            continue
        if connection.node is head:
            yield (
                f"{told(head)} feeds back its own stream, so every record would go round for "
                "ever: feed back what a step of the body lets through"
            )
        elif connection.node not in inside:
            yield (
                f"{told(head)} feeds back {told(connection.node)}, which does not read the "
                "loop's stream; to merge it in, write .union(...) before .iterate(...)"
            )


def _members(head: Node, members: set[Node]) -> Iterator[str]:
    for node in sorted(members - {head}, key=lambda node: node.number):
        if isinstance(node.spec, IterateStep) and node.number > head.number:
            yield (
                f"{told(node)} is a loop inside the loop {told(head)}, which cannot be told "
                "when it ends: let one loop do the work of both, with a field of the record that "
                "says which"
            )
        if isinstance(node.spec, SinkStep):
            yield (
                f"{told(head)} feeds back the errors of {told(node)}: a sink cannot be part of "
                'a loop; let a step with on_error="divert" before it find the records to repeat'
            )
