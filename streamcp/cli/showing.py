"""Stored checkpoints as people read them: tables and lists on stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.cli import words

# Without a terminal nothing is cut off.
_WIDE = 250
_FIRST_DATE, _LAST_DATE = 315_532_800_000, 4_102_444_800_000  # 1980 and 2100, in milliseconds


def print_list(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per checkpoint."""
    table = _table(
        "job", "checkpoint", "completed", "kind", "mode", "barrier>", "durable>", "in flight>",
        "state>", "on disk>", "refers to>",
    )  # fmt: skip
    for row in rows:
        head = [row["job"], str(row["checkpoint_id"])]
        if row["damage"] is not None:
            table.add_row(*head, "damaged", style="red")
            continue
        figures = _statistics(row)
        table.add_row(
            *head,
            _moment(row["completed_at"]),
            figures.kind,
            words.mode(figures),
            words.duration(figures.barrier_delay),
            words.duration(figures.durable_delay),
            words.number(figures.in_flight_records),
            words.size(figures.state_bytes),
            words.size(row["bytes"]),
            words.size(row["referenced_bytes"]) if row["referenced_bytes"] else "",
        )
    _console().print(table)
    for row in rows:
        if row["damage"] is not None:
            print(f"checkpoint {row['checkpoint_id']}: {row['damage']}")


def print_savepoints(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per savepoint."""
    table = _table("path", "job", "checkpoint", "completed", "mode", "in flight>", "on disk>")
    for row in rows:
        if row["damage"] is not None:
            table.add_row(row["path"], "unfinished or damaged", style="red")
            continue
        figures = _statistics(row)
        table.add_row(
            row["path"],
            row["job"],
            str(row["checkpoint_id"]),
            _moment(row["completed_at"]),
            words.mode(figures),
            words.number(figures.in_flight_records),
            words.size(row["bytes"]),
        )
    _console().print(table)
    for row in rows:
        if row["damage"] is not None:
            print(row["damage"])


def print_manifest(document: Mapping[str, Any]) -> None:
    """Print what is known of one checkpoint."""
    figures = _statistics(document)
    final = ", the last of a finished job" if document["final"] else ""
    print(f"checkpoint {document['checkpoint_id']} of job {document['job']}{final}")
    print(f"  completed {_moment(document['completed_at'])}, attempt {document['attempt']}")
    print(f"  {figures.kind}, {words.mode(figures)} ({figures.reason})")
    print(
        f"  barrier {words.duration(figures.barrier_delay)}, durable "
        f"{words.duration(figures.durable_delay)}"
    )
    print(
        f"  state {words.size(figures.state_bytes)}, "
        f"{words.in_flight(figures.in_flight_records, figures.in_flight_bytes)}"
    )
    for name, count in document["files"].items():
        print(f"  {name}: {words.size(count)}")
    for name, count in document["referenced"].items():
        print(f"  {words.size(count)} of {name}, of an earlier checkpoint")
    print()
    _console().print(_subtask_table(document["subtasks"], document["referenced"]))


def _subtask_table(subtasks: Sequence[Mapping[str, Any]], referenced: Mapping[str, int]) -> Table:
    table = _table(
        "subtask", "start delay>", "alignment>", "sync>", "async>", "end to end>", "state>",
        "in flight>", "", "holds",
    )  # fmt: skip
    for one in subtasks:
        figures = one["statistics"]
        table.add_row(
            one["subtask"] + (" (finished)" if one["finished"] else ""),
            *(
                words.duration(figures[name])
                for name in ("start_delay", "alignment", "sync", "asynchronous", "end_to_end")
            ),
            words.size(figures["state_bytes"]),
            words.number(figures["in_flight_records"]),
            words.size(figures["in_flight_bytes"]),
            ", ".join(_section(section, referenced) for section in one["sections"]),
        )
    return table


def _section(section: Mapping[str, Any], referenced: Mapping[str, int]) -> str:
    size = words.size(section["bytes"])
    where = f"{size} of {section['file']}" if section["file"] in referenced else size
    return f"{section['kind']} {section['name']} ({where})"


def print_in_flight(sections: Sequence[Mapping[str, Any]]) -> None:
    """Print every record that was on its way, section by section."""
    if not sections:
        print("\nnothing was in flight")
    for section in sections:
        count = words.counted(len(section["records"]), "record")
        print(f"\n{section['kind']} {section['name']}, {count}, in {section['subtask']}")
        for record in section["records"]:
            status = f"{record['status']}: " if "status" in record else ""
            print(f"  {status}{record['value']!r}")


def print_state(step: str, rows: Sequence[Mapping[str, Any]], key: str | None) -> None:
    """Print keys and their state, and the broadcast state of each subtask; or that there is none of
    the `key` that was asked for."""
    if key is not None and not rows:
        print(f"\nstate of {step}: none of a key {key!r}")
        return
    keyed = [row for row in rows if "key" in row]
    print(f"\nstate of {step}, {words.counted(len(keyed), 'key')}")
    for row in keyed:
        beside = (("timers", "timers at"), ("event_timers", "event-time timers at"))
        told = "".join(
            f", {label} {', '.join(map(_time, row[name]))}"
            for name, label in beside
            if row.get(name)
        )
        told += f", updated at {_time(row['updated'])}" if "updated" in row else ""
        print(f"  {row['key']!r}: {row['value']!r}{told}")
    for row in rows:
        if "key" not in row:
            print(f"  broadcast, in {row['subtask']}: {row['value']!r}")


def _statistics(document: Mapping[str, Any]) -> CheckpointStatistics:
    known = {"checkpoint_id": document["checkpoint_id"], "mode": document["mode"]}
    return CheckpointStatistics.from_dict(known | dict(document["statistics"]))


def _moment(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _time(milliseconds: int) -> str:
    """A time to the millisecond; the number itself where it is no date that a clock would show."""
    if not _FIRST_DATE <= milliseconds < _LAST_DATE:
        return str(milliseconds)
    return f"{_moment(milliseconds)}.{milliseconds % 1000:03}"


def _table(*columns: str) -> Table:
    """Make a table; a column that ends with `>` is aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(
            column.rstrip(">"), justify="right" if column.endswith(">") else "left", no_wrap=True
        )
    return table


def _console() -> Console:
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=_WIDE)
