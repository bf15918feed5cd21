"""`streamcp checkpoints list|show|verify`: look at stored checkpoints, also while their job runs,
and at savepoints.

Only reads. Classes of the job are not needed: records are shown by the names of their fields.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from streamcp.checkpoint.snapshot import Manifest
from streamcp.cli import errors
from streamcp.cli.contents import captured, plain, state_rows
from streamcp.cli.options import NO_VALUE
from streamcp.cli.showing import print_in_flight, print_list, print_manifest, print_state
from streamcp.cli.words import print_json
from streamcp.errors import CheckpointDamaged, StorageError
from streamcp.storage.reading import StoredJob, find_jobs, referenced_sizes
from streamcp.storage.savepoints import SectionReader, StoredSavepoint

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Look at checkpoints.")

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Where checkpoints go, or one job's directory in it.")
]
DirectoryOrSavepoint = Annotated[
    Path, typer.Argument(metavar="DIR", help="As for list, or the directory of a savepoint.")
]
JobName = Annotated[
    str | None, typer.Argument(metavar="JOBNAME", help="Of which job; needed if there are several.")
]
Json = Annotated[bool, typer.Option("--json", metavar=NO_VALUE, help="Print one JSON document.")]
History: TypeAlias = Mapping[int, Mapping[str, Any]]
Whole = Annotated[
    bool,
    typer.Option("--traceback", metavar=NO_VALUE, help="Show errors with the whole traceback."),
]


@app.command("list")
def list_checkpoints(
    directory: Directory, job: JobName = None, json: Json = False, traceback: Whole = False
) -> None:
    """List the complete checkpoints, the newest last."""
    with errors.shown(whole=traceback):
        rows = [row for stored in jobs_in(directory, job) for row in _rows(stored)]
        if json:
            print_json(rows, sys.stdout)
        else:
            print_list(rows)


@app.command("show")
def show(
    directory: DirectoryOrSavepoint,
    job: JobName = None,
    checkpoint: Annotated[
        int | None, typer.Option("--checkpoint", metavar="ID", help="Which one (the newest).")
    ] = None,
    in_flight: Annotated[
        bool,
        typer.Option(
            "--in-flight", metavar=NO_VALUE, help="Print the records that were on their way."
        ),
    ] = False,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STEP", help="Print the state of a step.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="KEY", help="Of one key only, written as in Python or as text."
        ),
    ] = None,
    json: Json = False,
    traceback: Whole = False,
) -> None:
    """Show one checkpoint: its figures, per subtask too, and the sizes of its files."""
    with errors.shown(whole=traceback):
        savepoint = savepoint_at(directory)
        if savepoint is not None:
            reader: SectionReader = savepoint
            manifest, files = savepoint.load_manifest(), savepoint.file_sizes()
            history: History = {}
        else:
            stored = one_job_in(directory, job)
            reader, manifest = stored, stored.load_manifest(_chosen(stored, checkpoint))
            files, history = stored.file_sizes(manifest.checkpoint_id), _history(stored)
        document = head(manifest, history) | _body(manifest, files)
        if in_flight:
            document["in_flight"] = captured(reader, manifest)
        if state is not None:
            document["state"] = state_rows(reader, manifest, state, key)
        if json:
            print_json(plain(document), sys.stdout)
            return
        print_manifest(document)
        if in_flight:
            print_in_flight(document["in_flight"])
        if state is not None:
            print_state(state, document["state"], key)


@app.command("verify")
def verify(
    directory: DirectoryOrSavepoint,
    job: JobName = None,
    json: Json = False,
    traceback: Whole = False,
) -> None:
    """Read every file and check it; name the damaged ones. Exit code 1 if there are any."""
    with errors.shown(whole=traceback):
        savepoint = savepoint_at(directory)
        if savepoint is not None:
            found = [_verified_savepoint(savepoint)]
        else:
            found = [_verified(stored) for stored in jobs_in(directory, job)]
    damaged = any(one["damaged"] for one in found)
    if json:
        print_json(found, sys.stdout)
    else:
        for one in found:
            ids = ", ".join(map(str, one["checkpoints"])) or "none"
            print(f"job {one['job']}: checkpoints {ids}")
            for sentence in one["damaged"]:
                print(f"  {sentence}")
        print("something is damaged" if damaged else "everything is whole")
    raise typer.Exit(errors.FAILED if damaged else errors.DONE)


def jobs_in(directory: Path, name: str | None) -> list[StoredJob]:
    """Find the jobs that have checkpoints there, or the one of them that has this name.

    Raises WrongUse if there is none."""
    if not directory.is_dir():
        raise errors.WrongUse(f"{directory} is no directory: name one that checkpoints go to")
    found = find_jobs(directory)
    if not found:
        raise errors.WrongUse(
            f"no job has checkpoints in {directory}: name the directory that Checkpoints(to=...) "
            "or --checkpoints names"
        )
    if name is None:
        return found
    chosen = [stored for stored in found if stored.name == name]
    if not chosen:
        names = ", ".join(stored.name for stored in found)
        raise errors.WrongUse(f"{directory} has no job {name!r}; it has {names}")
    return chosen


def one_job_in(directory: Path, name: str | None) -> StoredJob:
    """Find the only job there, or the one of this name. Raises WrongUse otherwise."""
    found = jobs_in(directory, name)
    if len(found) > 1:
        paths = ", ".join(str(stored.directory) for stored in found)
        raise errors.WrongUse(f"{directory} has several jobs; write one of {paths}")
    return found[0]


def _chosen(stored: StoredJob, checkpoint: int | None) -> int:
    ids = [one.checkpoint_id for one in stored.completed()]
    if not ids:
        raise errors.WrongUse(f"job {stored.name} has no complete checkpoint")
    if checkpoint is None:
        return ids[-1]
    if checkpoint not in ids:
        known = ", ".join(map(str, ids))
        raise errors.WrongUse(f"job {stored.name} has no checkpoint {checkpoint}; it has {known}")
    return checkpoint


def _rows(stored: StoredJob) -> list[dict[str, Any]]:
    history = _history(stored)
    return [_row(stored, one.checkpoint_id, history) for one in stored.completed()]


def _row(stored: StoredJob, checkpoint_id: int, history: History) -> dict[str, Any]:
    row: dict[str, Any] = {"job": stored.name, "checkpoint_id": checkpoint_id, "damage": None}
    try:
        manifest = stored.load_manifest(checkpoint_id)
    except CheckpointDamaged as damage:
        return row | {"damage": str(damage)}
    return (
        row
        | head(manifest, history)
        | {"bytes": sum(stored.file_sizes(checkpoint_id).values())}
        | {"referenced_bytes": sum(referenced_sizes(manifest).values())}
    )


def _history(stored: StoredJob) -> History:
    """The figures by checkpoint: unlike a manifest they know when the completion was durable."""
    return {
        one["checkpoint_id"]: one
        for one in stored.read_history()
        if one.get("outcome") == "completed" and "checkpoint_id" in one
    }


def head(manifest: Manifest, history: History) -> dict[str, Any]:
    """What is said of a checkpoint first, with its figures: those of `history` if there are."""
    return {
        "job": manifest.job,
        "checkpoint_id": manifest.checkpoint_id,
        "attempt": manifest.attempt,
        "mode": manifest.mode,
        "final": manifest.final,
        "replaying": manifest.replaying,
        "triggered_at": manifest.triggered_at,
        "completed_at": manifest.completed_at,
        # A manifest is written before the checkpoint is complete; what is shown here is.
        "statistics": {
            **history.get(manifest.checkpoint_id, manifest.statistics),
            "outcome": "completed",
        },
    }


def _body(manifest: Manifest, files: Mapping[str, int]) -> dict[str, Any]:
    return {
        "tasks": [asdict(task) for task in manifest.tasks],
        "subtasks": [
            {
                "subtask": str(acknowledgement.subtask),
                "finished": acknowledgement.finished,
                "statistics": asdict(acknowledgement.statistics),
                "sections": [
                    {
                        "kind": one.kind,
                        "name": one.name,
                        "records": one.records,
                        "bytes": one.size,
                        "file": one.file,
                    }
                    for one in acknowledgement.sections
                ],
            }
            for acknowledgement in manifest.acknowledgements
        ],
        "files": files,
        "referenced": referenced_sizes(manifest),
    }


def savepoint_at(directory: Path) -> StoredSavepoint | None:
    """Find the savepoint whose directory this is; None if it is not one's."""
    savepoint = StoredSavepoint(directory)
    return savepoint if savepoint.exists() or savepoint.is_unfinished() else None


def _verified_savepoint(savepoint: StoredSavepoint) -> dict[str, Any]:
    try:
        manifest = savepoint.load_manifest()
    except StorageError as error:
        return {"job": str(savepoint.path), "checkpoints": [], "damaged": [str(error)]}
    ids = [manifest.checkpoint_id]
    return {"job": manifest.job, "checkpoints": ids, "damaged": savepoint.verify()}


def _verified(stored: StoredJob) -> dict[str, Any]:
    view = stored.log.read()
    ids = [one.checkpoint_id for one in view.completed]
    sentences = [*view.damaged.values(), *(s for each in ids for s in stored.verify(each))]
    return {
        "job": stored.name,
        "checkpoints": ids,
        "damaged": list(dict.fromkeys(sentences)),
    }
