"""From `JOB` on the command line to a job or job function.

A file is loaded as the module that its name says, and is registered under that name before it is
executed: then its classes are called in checkpoints as with `python file.py` and `python -m file`
(rule 18 of the API). Its `__main__` block is not executed (rule 15).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from streamcp.api.jobs import Job
from streamcp.api.parameters import JobFactory
from streamcp.cli.errors import WrongUse

Loaded: TypeAlias = Job | JobFactory[...]


@dataclass(frozen=True, slots=True)
class Target:
    """What `JOB` names: a file or a module, and perhaps a name in it."""

    module: str
    name: str | None

    @property
    def is_file(self) -> bool:
        """It is `file.py` rather than `package.module`."""
        return self.module.endswith(".py") or os.sep in self.module


def parse_target(text: str) -> Target:
    """Divide `module:name`; the colon of a drive is none of ours."""
    module, colon, name = text.rpartition(":")
    if colon and module and name.isidentifier():
        return Target(module, name)
    return Target(text, None)


def load(text: str) -> Loaded:
    """Load the job that `text` (`JOB`) names.

    The current directory becomes importable, and a file's own directory, as with `python file`.
    Raises WrongUse if there is none or more than one, and whatever the module raises."""
    target = parse_target(text)
    _make_importable(Path.cwd())
    module = _load_file(Path(target.module)) if target.is_file else _load_module(target.module)
    found = _jobs_in(module)
    if target.name is not None:
        if target.name in found:
            return found[target.name]
        raise WrongUse(f"{target.module} has no job {target.name!r}; {_listed(found)}")
    if len({id(job) for job in found.values()}) == 1:
        return next(iter(found.values()))
    if "job" in found:
        return found["job"]
    raise WrongUse(f"{text} does not say which job: {_listed(found, text)}")


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        remedy = f"; did you mean {name}.py?" if Path(f"{name}.py").is_file() else ""
        raise WrongUse(
            f"there is no module {error.name!r} in the current directory or installed{remedy}"
        ) from None


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise WrongUse(f"there is no file {path}")
    path = path.resolve()
    _make_importable(path.parent)
    name = path.stem
    existing = sys.modules.get(name)
    if existing is not None:
        if getattr(existing, "__file__", None) == str(path):
            return existing
        raise WrongUse(f"{path.name} is called like the module {name!r}; rename the file")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise WrongUse(f"{path} is no Python file; its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _jobs_in(module: ModuleType) -> dict[str, Loaded]:
    return {
        name: value for name, value in vars(module).items() if isinstance(value, Job | JobFactory)
    }


def _listed(found: dict[str, Loaded], text: str = "") -> str:
    if not found:
        return "there is no Job and no function marked @sc.job at its top level"
    if text:
        return "write " + " or ".join(f"{text}:{name}" for name in found)
    return f"it has {', '.join(found)}"
