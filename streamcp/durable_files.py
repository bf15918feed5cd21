"""Files that survive a crash: write, fsync, link, rename, fsync of the directory.

Invariant: what a function here promises as durable is on the disk when it returns, and every
failure is a `StorageError` whose sentence names the path and the cause. It must not know what the
files mean; used by checkpoint storage and by file connectors, nowhere else. Every function blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamcp.errors import StorageError

# Many small frames become few system calls; larger chunks pass the buffer by.
_BUFFER = 1 << 20

_CAUSES = {
    errno.ENOSPC: "disk full (free some space)",
    errno.EDQUOT: "disk quota used up (free some space)",
    errno.EACCES: "permission denied (check owner and mode)",
    errno.EPERM: "operation not permitted (check owner, mode and file system)",
    errno.EROFS: "the file system is read-only",
    errno.ENOENT: "no such file or directory",
    errno.EEXIST: "it exists already",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EISDIR: "it is a directory",
    errno.EIO: "the device reported an input/output error",
    errno.EMFILE: "too many open files (raise the limit with ulimit -n)",
    errno.ENFILE: "too many open files on this machine",
    errno.EMLINK: "too many links to one file",
    errno.ENAMETOOLONG: "the name is too long",
}


def explain(action: str, path: Path, error: OSError) -> StorageError:
    """Make the error that says which `path` could not be `action` (a past participle) and why."""
    cause = _CAUSES.get(error.errno or 0) or error.strerror or str(error)
    return StorageError(f"{path} could not be {action}: {cause}")


@contextlib.contextmanager
def _explained(action: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explain(action, path, error) from error


def write_file(path: Path, chunks: Iterable[bytes]) -> int:
    """Write `chunks` to a new file, fsync it, return its size.

    The content is durable; its name is only after `sync_directory` of the parent. Raises
    StorageError if the file exists (which is left alone), or if anything fails: then no part of it
    stays behind, so far as the file system lets it be removed.
    """
    with _explained("written", path):
        file = open(path, "xb", buffering=_BUFFER)  # noqa: SIM115 - closed below, also by errors
        try:
            with file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
                return file.tell()
        except BaseException:
            # After a failed fsync pages may be lost, and a second fsync would not tell: no retry.
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise


def link_new(source: Path, target: Path) -> bool:
    """Give `source` the second name `target` if that name is free; one atomic step.

    Returns False if the name belongs to another file. An unclear answer (an error although the
    link was made, as network file systems give) is settled by looking at `target` (rule P34).
    Raises StorageError if the name stayed free, or if that cannot be told.
    """
    try:
        os.link(source, target)
    except OSError as error:
        if is_same_file(source, target):
            return True
        if exists(target):
            return False
        raise explain("linked", target, error) from error
    return True


def is_same_file(one: Path, other: Path) -> bool:
    """Tell whether both names exist and belong to one file; raises StorageError if unreadable."""
    try:
        return os.path.samestat(os.stat(one), os.stat(other))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise explain("looked at", other, error) from error


def exists(path: Path) -> bool:
    """Tell whether `path` exists; raises StorageError if that cannot be told."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise explain("looked at", path, error) from error
    return True


def rename(source: Path, target: Path) -> None:
    """Move `source` to `target` in one atomic step, replacing it, and make the new name durable.

    Raises StorageError if `source` is missing; then `target` is untouched. After an error of the
    last fsync the rename may or may not survive a crash.
    """
    with _explained("renamed", source):
        os.replace(source, target)
    sync_directory(target.parent)


def sync_directory(path: Path) -> None:
    """Make the names in directory `path` durable: creations, renames and removals so far."""
    with _explained("fsynced", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make directory `path` if it is not there; durable after `sync_directory` of its parent."""
    with _explained("made", path):
        path.mkdir(exist_ok=True)


def make_directories(path: Path) -> None:
    """Make directory `path` and its missing parents, durably."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    for place in reversed(missing):
        with _explained("made", place):
            place.mkdir(exist_ok=True)
        sync_directory(place.parent)


def list_directory(path: Path) -> list[str]:
    """Name what lies in directory `path`, sorted; nothing if it does not exist."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise explain("listed", path, error) from error


def read_file(path: Path) -> bytes | None:
    """Read the whole of `path`; None if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise explain("read", path, error) from error


def read_range(path: Path, offset: int, length: int) -> bytes | None:
    """Read `length` bytes from `offset`, fewer if the file is short; None if it does not exist."""
    try:
        with open(path, "rb", buffering=0) as file:
            # Asked first: a wrong length from a damaged file must not reserve that much memory.
            available = max(0, os.fstat(file.fileno()).st_size - offset)
            return _read_at(file.fileno(), offset, min(length, available))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise explain("read", path, error) from error


def _read_at(descriptor: int, offset: int, length: int) -> bytes:
    parts = []
    while length > 0:
        part = os.pread(descriptor, length, offset)  # gives 2 GiB at most
        if not part:
            break
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def remove_file(path: Path) -> None:
    """Remove `path`; nothing happens if it does not exist."""
    with _explained("removed", path), contextlib.suppress(FileNotFoundError):
        path.unlink()


def remove_directory(path: Path) -> None:
    """Remove the empty directory `path`; nothing happens if it does not exist."""
    with _explained("removed", path), contextlib.suppress(FileNotFoundError):
        path.rmdir()
