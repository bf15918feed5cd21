"""Installs the peers: `python -m benchmarks.peers.install [NAME...] [--to DIR]`.

Each gets a virtual environment of its own, with pinned versions of the peer; pip takes what it
can from its cache. What cannot be installed is told with the reason, and the others go on.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.catalogue import (
    ENVIRONMENTS,
    HOME_VARIABLE,
    INSTALLED,
    Environment,
    default_home,
)


class NotInstalled(Exception):
    """A peer cannot be installed; the text says why."""


def install(environment: Environment, home: Path) -> str:
    """Make the environment anew; return what is in it. Raises NotInstalled."""
    if environment.java and shutil.which("java") is None:
        raise NotInstalled("there is no java; on Debian: apt-get install openjdk-17-jre-headless")
    folder = environment.folder(home)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = str(environment.python(home))
    _call([python, "-m", "pip", "install", "--quiet", *environment.requirements])
    packages = _call([python, "-m", "pip", "freeze"])
    (folder / INSTALLED).write_text(packages, encoding="utf-8")
    return packages


def _call(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalled(" ".join(errors) or done.stderr.strip()[-500:])
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Install what is named, or all; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.install")
    known = ", ".join(ENVIRONMENTS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {known}; all by default")
    parser.add_argument(
        "--to",
        type=Path,
        default=default_home(),
        metavar="DIR",
        help=f"where to; by default ${HOME_VARIABLE}, or .peers in the checkout",
    )
    parser.add_argument("--again", action="store_true", help="also what is installed already")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in ENVIRONMENTS:
            parser.error(f"{name}: there is no such peer; choose of {known}")
    chosen = [ENVIRONMENTS[name] for name in options.names or ENVIRONMENTS]
    told = [_tell(one, options.to.resolve(), again=options.again) for one in chosen]
    return 0 if all(told) else 1


def _tell(environment: Environment, home: Path, *, again: bool) -> bool:
    """Install one and say so; return whether it is installed."""
    what = ", ".join(environment.requirements)
    if environment.is_installed(home) and not again:
        print(f"{environment.name}: {what} is installed already", flush=True)
        return True
    print(f"{environment.name}: installing {what}", flush=True)
    try:
        packages = install(environment, home)
    except NotInstalled as error:
        print(f"{environment.name}: not installed: {error}", flush=True)
        return False
    folder = environment.folder(home)
    print(f"{environment.name}: {len(packages.splitlines())} packages in {folder}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
