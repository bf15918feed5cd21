"""`streamcp savepoints list|delete`: the savepoints in a directory; see `checkpoints` for looking
into one, and `control` for taking one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from streamcp.cli import errors
from streamcp.cli.checkpoints import Json, Whole, head
from streamcp.cli.showing import print_savepoints
from streamcp.cli.words import print_json
from streamcp.errors import StorageError
from streamcp.storage.savepoints import StoredSavepoint, find_savepoints

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="List and delete savepoints.")


@app.command("list")
def list_savepoints(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where savepoints go.")],
    json: Json = False,
    traceback: Whole = False,
) -> None:
    """List the savepoints in a directory; those that were never finished or are damaged too."""
    with errors.shown(whole=traceback):
        if not directory.is_dir():
            raise errors.WrongUse(f"{directory} is no directory: name one that savepoints go to")
        rows = [_row(savepoint) for savepoint in find_savepoints(directory)]
        if json:
            print_json(rows, sys.stdout)
        elif rows:
            print_savepoints(rows)
        else:
            print(f"no savepoints in {directory}")


@app.command("delete")
def delete(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The directory of a savepoint.")],
    json: Json = False,
    traceback: Whole = False,
) -> None:
    """Delete a savepoint, whole or not. What is none is refused and left alone."""
    with errors.shown(whole=traceback):
        StoredSavepoint(path).delete()
        if json:
            print_json({"deleted": str(path)}, sys.stdout)
        else:
            print(f"savepoint {path} deleted")


def _row(savepoint: StoredSavepoint) -> dict[str, Any]:
    row: dict[str, Any] = {"path": str(savepoint.path), "damage": None}
    try:
        manifest = savepoint.load_manifest()
    except StorageError as damage:
        return row | {"damage": str(damage)}
    return row | head(manifest, {}) | {"bytes": sum(savepoint.file_sizes().values())}
