"""The settings of a run, merged from five origins (rule 15): command line, arguments of `run()`,
`STREAMCP_*`, arguments of `Job(...)`, `[tool.streamcp]`; earlier ones win.

Each origin is a mapping of setting names. `checkpoints` is a `Checkpoints` (which replaces all of
later origins), a directory, or a mapping of its fields (which replaces only those). Unknown names
are errors, wherever they come from. Only `read_environment` and `read_project` look outside.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from streamcp.api.options import did_you_mean
from streamcp.config import Checkpoints, JobSettings, Restart
from streamcp.errors import SettingsError

PREFIX = "STREAMCP_"
_SETTINGS = frozenset(field.name for field in dataclasses.fields(JobSettings))
_FIELDS = frozenset(field.name for field in dataclasses.fields(Checkpoints))
_RESTARTS: Mapping[str, Callable[..., Restart]] = {
    "none": Restart.none,
    "fixed_delay": Restart.fixed_delay,
    "exponential_backoff": Restart.exponential_backoff,
    "failure_rate": Restart.failure_rate,
}
# What text may stand for; everything else is text or a duration, checked by `config`.
_SWITCHES = frozenset(
    {
        "fresh",
        "accept_duplicates",
        "allow_unmatched_state",
        "take_over",
        "predict",
        "fail_on_max_age",
        "incremental",
        "strict",
    }
)
_NUMBERS = frozenset(
    {
        "channel_capacity",
        "max_concurrent",
        "max_in_flight_bytes",
        "retain",
        "tolerable_failures",
    }
)
_WORDS = {"1": True, "true": True, "yes": True, "on": True} | dict.fromkeys(
    ("0", "false", "no", "off"), False
)

# The names that `streamcp run` has itself, or will have: a parameter of a job function cannot be
# called so.
RUN_OPTIONS = (
    _SETTINGS
    | (_FIELDS - {"to"})
    | {"no_predict", "workers", "ui", "json", "quiet", "traceback", "help"}
)


def merge_settings(*origins: tuple[str, Mapping[str, Any]]) -> JobSettings:
    """Merge `(how errors call it, its settings)`, the strongest origin first.

    None means "not set here". Without a restart strategy a job with checkpoints restarts up to
    three times, and one without fails at once, since it would begin anew.
    Raises SettingsError for an unknown name or a value that the setting cannot have."""
    values: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for origin, settings in reversed(origins):
        for name, value in settings.items():
            if name not in _SETTINGS:
                raise SettingsError(f"{origin}: there is no setting {name!r}{_instead_of(name)}")
            if value is None:
                continue
            if name == "checkpoints":
                fields |= _checkpoint_fields(origin, value)
            else:
                values[name] = _checked(origin, name, value)
    checkpoints = _checkpoints(fields)
    values.setdefault("restart", _default_restart(checkpoints))
    return JobSettings(checkpoints=checkpoints, **values)


def _instead_of(name: str) -> str:
    if name in _FIELDS:
        return f"; it is a field of checkpoints: write checkpoints.{name}, in the environment " + (
            f"{PREFIX}CHECKPOINTS{'' if name == 'to' else f'_{name.upper()}'}"
        )
    return did_you_mean(name, _SETTINGS)


def read_environment(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Read `STREAMCP_<SETTING>` and `STREAMCP_CHECKPOINTS_<FIELD>`, e.g. STREAMCP_FRESH=1,
    STREAMCP_CHECKPOINTS=./checkpoints (the directory), STREAMCP_CHECKPOINTS_EVERY=10s."""
    settings: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for variable, value in (os.environ if environment is None else environment).items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name == "checkpoints":
            fields["to"] = value
        elif name.startswith("checkpoints_"):
            fields[name.removeprefix("checkpoints_")] = value
        else:
            settings[name] = value
    return settings | ({"checkpoints": fields} if fields else {})


def read_project(start: Path | None = None) -> dict[str, Any]:
    """Read `[tool.streamcp]` of the nearest pyproject.toml in `start` or above it."""
    folder = (Path.cwd() if start is None else start).resolve()
    for file in (parent / "pyproject.toml" for parent in (folder, *folder.parents)):
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            if "streamcp" not in text:
                return {}  # parsing a large file takes longer than starting a job
            try:
                return copy.deepcopy(_table_of(text))
            except tomllib.TOMLDecodeError as error:
                raise SettingsError(f"{file} cannot be read: {error}") from error
    return {}


# Whoever starts many jobs in a process starts them in the same project.
@lru_cache(maxsize=4)
def _table_of(project: str) -> dict[str, Any]:
    """Find `[tool.streamcp]` in the text of a pyproject.toml. What comes of it is not changed."""
    return dict(tomllib.loads(project).get("tool", {}).get("streamcp", {}))


def _default_restart(checkpoints: Checkpoints | None) -> Restart:
    if checkpoints is None:
        return Restart.none()
    return Restart.exponential_backoff(attempts=3)


def _checkpoint_fields(origin: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Checkpoints):
        return {name: getattr(value, name) for name in _FIELDS}
    if isinstance(value, str | Path):
        return {"to": value}
    if not isinstance(value, Mapping):
        raise SettingsError(
            f"{origin}: checkpoints={value!r}: write a directory or Checkpoints(to=...)"
        )
    for name in value:
        if name not in _FIELDS:
            raise SettingsError(
                f"{origin}: there is no setting checkpoints.{name}{did_you_mean(name, _FIELDS)}"
            )
    return {
        name: _converted(origin, f"checkpoints.{name}", value[name])
        for name in value
        if value[name] is not None
    }


def _checkpoints(fields: dict[str, Any]) -> Checkpoints | None:
    if not fields:
        return None
    if "to" not in fields:
        raise SettingsError(
            f"checkpoints: {', '.join(sorted(fields))} is set, but no directory; pass "
            "--checkpoints DIR, set STREAMCP_CHECKPOINTS, or give the job Checkpoints(to=...)"
        )
    return Checkpoints(**fields)


def _checked(origin: str, name: str, value: Any) -> Any:
    if name == "restart":
        return _restart(origin, value)
    value = _converted(origin, name, value)
    if name == "channel_capacity" and value < 1:
        raise SettingsError(f"{origin}: channel_capacity={value}: write 1 or more")
    return value


def _converted(origin: str, name: str, value: Any) -> Any:
    """Turn text into what the setting needs; `name` may be `checkpoints.<field>`."""
    field = name.rpartition(".")[2]
    wrong = SettingsError(f"{origin}: {name}={value!r} is not ")
    if field in _SWITCHES:
        value = _WORDS.get(value.lower(), value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise SettingsError(f"{wrong}true or false")
    elif field in _NUMBERS:
        value = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
        if type(value) is not int:
            raise SettingsError(f"{wrong}a whole number")
    return value


def _restart(origin: str, value: Any) -> Restart:
    if isinstance(value, Restart):
        return value
    options = dict(value) if isinstance(value, Mapping) else {}
    kind = options.pop("kind", None) if isinstance(value, Mapping) else value
    make = _RESTARTS.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise SettingsError(
            f"{origin}: restart={value!r}: choose one of {', '.join(_RESTARTS)}, or write a table "
            "with kind and its options"
        )
    try:
        return make(**options)
    except TypeError as error:
        raise SettingsError(f"{origin}: restart={value!r}: {error}") from error
