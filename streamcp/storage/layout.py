"""The names of directories and files below a checkpoint directory.

    <directory>/<job>/lock                        who runs the job now
    <directory>/<job>/log/000000000017            the completion log (see `log`)
    <directory>/<job>/chk-00001003/_metadata      the manifest of checkpoint 1003
    <directory>/<job>/chk-00001003/data-2-1       a data file, of attempt 2
    <directory>/<job>/journal/00000002-000001     answers of attempt 2 (see `journal`)
    <directory>/<job>/history.jsonl               figures of past checkpoints
    <directory>/<job>/control/socket              where the running job is asked for things

    <anywhere>/<job>-1003/_metadata               the manifest of a savepoint
    <anywhere>/<job>-1003/data                    all its data

Only names here: no file is touched. Widths keep listings sorted; larger numbers still work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

LOG = "log"
LOCK = "lock"
JOURNAL = "journal"
HISTORY = "history.jsonl"
CONTROL = "control"
SOCKET = "socket"
METADATA = "_metadata"
METADATA_DRAFT = "_metadata.draft"
SAVEPOINT_DATA = "data"
SAVEPOINT_FILES = frozenset({METADATA, METADATA_DRAFT, SAVEPOINT_DATA})
"""Whatever may lie in the directory of a savepoint, finished or not."""

_CHECKPOINT = re.compile(r"chk-(\d{8,18})", re.ASCII)
_ENTRY = re.compile(r"(\d{12,18})", re.ASCII)
_JOURNAL_FILE = re.compile(r"(\d{8,18})-(\d{6,18})", re.ASCII)
_SAVEPOINT = re.compile(r".+-\d{1,18}", re.ASCII)
_DATA_FILE = re.compile(r"chk-\d{8,18}/data-\d+-\d+", re.ASCII)


def job_directory(job: str) -> str:
    """Name the directory of `job`: its name, with what a path cannot hold written as %XX."""
    name = quote(job, safe=" ()[]+=@,")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def job_name(directory: str) -> str:
    """Tell which job a directory belongs to."""
    return unquote(directory)


def checkpoint_directory(checkpoint_id: int) -> str:
    """Name the directory of a checkpoint."""
    return f"chk-{checkpoint_id:08d}"


def checkpoint_of(directory: str) -> int | None:
    """Tell which checkpoint a directory belongs to; None if it is not one's."""
    match = _CHECKPOINT.fullmatch(directory)
    return int(match[1]) if match else None


def data_file(checkpoint_id: int, attempt: int, serial: int) -> str:
    """Name a data file, relative to the job's directory, as section handles do."""
    return f"{checkpoint_directory(checkpoint_id)}/data-{attempt}-{serial}"


def checkpoint_of_file(name: str) -> int | None:
    """Tell in which checkpoint's directory a data file lies; None for that of a savepoint."""
    return checkpoint_of(name.partition("/")[0])


def is_data_file(name: str) -> bool:
    """Tell whether `name` is a data file's; a damaged manifest must not lead anywhere else."""
    return name == SAVEPOINT_DATA or _DATA_FILE.fullmatch(name) is not None


def savepoint_directory(job: str, checkpoint_id: int, copy: int = 1) -> str:
    """Name the directory of a savepoint; `copy` tells apart those whose names were taken."""
    name = f"{job_directory(job)}-{checkpoint_id}"
    return name if copy == 1 else f"{name}-{copy}"


def names_in(checkpoint_id: int, files: Iterable[str]) -> list[str]:
    """List what the directory of a complete checkpoint holds, if `files` are those that its
    manifest refers to."""
    directory = checkpoint_directory(checkpoint_id) + "/"
    own = [file.removeprefix(directory) for file in files if file.startswith(directory)]
    return [METADATA, *sorted(own)]


def entry(number: int) -> str:
    """Name an entry of the completion log."""
    return f"{number:012d}"


def entry_number(name: str) -> int | None:
    """Tell the number of a log entry; None if `name` is not one's."""
    match = _ENTRY.fullmatch(name)
    return int(match[1]) if match else None


def journal_file(attempt: int, segment: int) -> str:
    """Name a segment of the journal of an attempt."""
    return f"{attempt:08d}-{segment:06d}"


def segment_of(name: str) -> tuple[int, int] | None:
    """Tell attempt and number of a segment; None if `name` is not one's."""
    match = _JOURNAL_FILE.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def may_be_savepoint(directory: str) -> bool:
    """Tell whether a directory is called as those of savepoints are."""
    return _SAVEPOINT.fullmatch(directory) is not None
