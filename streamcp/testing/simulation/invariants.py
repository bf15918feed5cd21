"""I1 to I8 of the protocol, as far as a simulated run can see them (`answers` has I9).

Each check raises Violation with the invariant's name. I1 and I3 show in what the steps put out:
their states mark a record that comes twice or too early. I4 begins with event time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamcp.checkpoint.snapshot import Manifest
from streamcp.errors import CheckpointDamaged, StreamcpError
from streamcp.runners.life import JobLife
from streamcp.storage import layout
from streamcp.storage.contract import CheckpointStorage
from streamcp.storage.reading import files_of
from streamcp.testing.simulation.branches import existing
from streamcp.testing.simulation.files import Files
from streamcp.testing.simulation.jobs import JobSpec, Rows, expected_rows
from streamcp.testing.simulation.kinds_loop import is_back_edge
from streamcp.testing.simulation.output import Output
from streamcp.testing.simulation.world import Life, World

# What a slice may put out beyond the room that was free: a step's records may become several each.
_EXPANSION = {
    **{"flat_map": 2, "async_flat_map": 2, "keyed": 3, "keyed_async": 3},
    **{"connect": 3, "connect_async": 3, "loop": 2},
}
_SHOWN = 3


class Violation(Exception):
    """An invariant does not hold."""


def check_output(
    spec: JobSpec, output: Output, read: Mapping[tuple[str, int], int] | None = None
) -> None:
    """I1, I2, I3: every sink has what the plain computation gives, of the records that were `read`
    of each split; None for all.

    Exactly; but sinks that promise no more may have records more than once, and in an
    at-least-once job there may be anything beside what must be there."""
    if output.broken is not None:
        raise Violation(f"I2: {output.broken}")
    expected = expected_rows(spec, read)
    possible = expected if read is None else expected_rows(spec)
    for sink in spec.sinks:
        rows, found = expected[sink.name], Counter(output.rows(sink.name))
        too_many: Mapping[Any, int] = found - rows
        if spec.at_least_once:
            # What comes again is marked as early or late, so the tags are left out.
            rows, found = _untagged(rows), _untagged(found)
            too_many = {}
        elif sink.kind == "plain":
            too_many = dict.fromkeys(found.keys() - possible[sink.name], 1)
        too_few = rows - found
        if too_many or too_few:
            raise Violation(
                f"I1: {sink.name} has {some(too_many)} too many, {some(too_few)} too few"
            )


def _untagged(rows: Rows) -> Rows:
    untagged: Rows = Counter()
    for row, count in rows.items():
        untagged[row[:-1]] += count  # rows that differ in their tags alone come together
    return untagged


def some(rows: Mapping[Any, int]) -> str:
    """A few of the rows, and how many more there are."""
    shown = [f"{row} × {count}" for row, count in sorted(rows.items(), key=repr)[:_SHOWN]]
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return f"[{', '.join(shown)}{more}]"


def check_manifest(manifest: Manifest) -> None:
    """I5 (P11): an aligned checkpoint that was not escalated holds nothing of a channel, unless it
    is a back edge (P19)."""
    is_aligned = manifest.statistics.get("mode") in ("aligned", "at_least_once")
    if not is_aligned or manifest.statistics.get("escalated_after") is not None:
        return
    for acknowledgement in manifest.acknowledgements:
        for section in acknowledgement.sections:
            if section.kind == "channel" and section.records and not is_back_edge(section.name):
                raise Violation(
                    f"I5: aligned checkpoint {manifest.checkpoint_id} holds {section.records} "
                    f"in-flight records of {section.name}"
                )


def check_queues(spec: JobSpec, job: JobLife) -> None:
    """I6: no queue holds more than its capacity, one slice's output, and what was restored."""
    attempt = job._attempt
    restored = attempt._prepared.restorable if attempt is not None else None
    slack = restored.in_flight_records if restored is not None else 0
    expansion = 1
    for step in spec.steps:
        expansion *= _EXPANSION.get(step.kind, 1)
    for subtask in attempt.subtasks if attempt is not None else ():
        for channel in subtask.gate.channels:
            if channel.occupied > (channel.capacity + slack) * expansion + expansion:
                raise Violation(f"I6: {channel!r} (restored: {slack}, expansion: {expansion})")


def check_files(life: Life, job: str) -> None:
    """I7: behind an undisturbed life every file belongs to a complete checkpoint, or to one that
    refers to it; and they can be read, the newest one whole (P2)."""
    files, directory = life.outside.files, life.branch.directory
    storage = files.storage(directory, job, life.world.clock, files.disk.process("check"))
    try:
        # Those that were left for a savepoint, too: they are still there to be removed.
        completed = [one.checkpoint_id for one in life.branch.log(files, job).completed]
        _check_owned(files, directory, completed, _needed(storage, completed))
        storage.start_attempt()
    except StreamcpError as error:
        raise Violation(f"P2: the checkpoints cannot be read: {error}") from error
    damaged = storage.verify(completed[-1]) if completed else []
    storage.close()
    if damaged:
        raise Violation(f"P2: {damaged[0]}")


def _check_owned(files: Files, directory: Path, completed: Iterable[int], needed: Set[str]) -> None:
    """Before the next start, which would remove what this one has left."""
    complete = {layout.checkpoint_directory(one) for one in completed}
    for path in files.disk.paths():
        if not Path(path).is_relative_to(directory):
            continue
        if _unowned(path.split("/"), complete, needed):
            raise Violation(f"I7: {path} belongs to no complete checkpoint")
        if path.split("/")[-1].startswith("."):
            raise Violation(f"I7: {path} was left behind")


def check_savepoints(world: World) -> None:
    """P4: savepoints that were announced are there, and all that are there are whole."""
    found = {savepoint.path: savepoint for savepoint in existing(world.outside.files)}
    missing = sorted(world.savepoints.announced - found.keys())
    if missing:
        raise Violation(f"P4: savepoint {missing[0]} is gone")
    for path, savepoint in found.items():
        if damaged := savepoint.verify():
            raise Violation(f"P4: savepoint {path} is not whole: {damaged[0]}")


def _needed(storage: CheckpointStorage, completed: Iterable[int]) -> set[str]:
    """Name the files that complete checkpoints refer to, and the directories of these."""
    needed: set[str] = set()
    for checkpoint_id in completed:
        with suppress(CheckpointDamaged):  # an old one, back after a loss of power
            for name in files_of(storage.load_manifest(checkpoint_id)):
                needed |= {name, name.partition("/")[0]}
    return needed


def _unowned(path: list[str], complete: Set[str], needed: Set[str]) -> bool:
    """Say whether a path is a checkpoint's that is not complete, and no complete one needs it."""
    for at, name in enumerate(path):
        if layout.checkpoint_of(name) is not None and name not in complete:
            return "/".join(path[at:]) not in needed
    return False


def check_nothing_left(life: Life) -> None:
    """I8: behind a life there is no task, no timer, and nothing opened that was not closed."""
    loop = life.world.loop
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    if tasks:
        names = ", ".join(sorted(task.get_name() for task in tasks))
        raise Violation(f"I8: tasks are left: {names}")
    timers = [handle for handle in loop._scheduled if not handle._cancelled]  # type: ignore[attr-defined]
    if timers:
        raise Violation(f"I8: {len(timers)} timers are left, the first for {timers[0]._callback}")
    check_closed(life)


def check_closed(life: Life) -> None:
    """I8: a life has closed what it opened."""
    left = [*life.opened, *map(str, life.disk.open_paths())]
    if left:
        raise Violation(f"I8: not closed: {', '.join(sorted(left))}")
