"""One setting in several values, each a comparison of its own: how the modes depend on it.

At each value every mode runs once, with the same records; the order of the modes turns around from
one value to the next, so that what drifts weighs on all alike.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamcp.compare.charts.axis import duration, number
from streamcp.compare.experiment import (
    Experiment,
    Observer,
    Plan,
    count_of_runs,
    run_experiment,
    run_reference,
)
from streamcp.compare.runs import Life
from streamcp.config import Mode, seconds
from streamcp.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Setting:
    """What can be swept: `label` says it with its unit, `read` a value from text (None if it is
    none), `text` writes one, `field` is that of the plan which it sets. `remedy` says how values
    are written. What is counted is said behind its number, anything else in brackets."""

    name: str
    label: str
    field: str
    read: Callable[[str], float | None]
    text: Callable[[float], str]
    remedy: str
    takes_text: bool = False
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """One value, as it was written and as a number."""

    text: str
    number: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """A setting and its values, in the order given."""

    setting: Setting
    values: Sequence[Value]

    @property
    def text(self) -> str:
        """The sweep as it was written."""
        return f"{self.setting.name}={','.join(value.text for value in self.values)}"

    @classmethod
    def from_text(cls, text: str) -> Sweep:
        """Read `capacity=10,100,1000`.

        Raises SettingsError naming what cannot be read, and how it is written."""
        name, _, listed = text.partition("=")
        setting = SETTINGS.get(name.strip())
        if setting is None:
            raise SettingsError(
                f"--sweep {text}: {name.strip()!r} cannot be swept; write one of "
                f"{', '.join(one.remedy for one in SETTINGS.values())}"
            )
        values = [_value(text, setting, word.strip()) for word in listed.split(",")]
        numbers = {value.number for value in values}
        if len(values) < 2 or len(numbers) < len(values):
            raise SettingsError(
                f"--sweep {text}: a sweep needs two values or more, each once; write "
                f"{setting.remedy}"
            )
        return cls(setting, values)


def _value(text: str, setting: Setting, word: str) -> Value:
    read = setting.read(word)
    if read is None:
        raise SettingsError(
            f"--sweep {text}: {word!r} is no value of {setting.name}; write {setting.remedy}"
        )
    return Value(word, read)


def _count(word: str) -> float | None:
    return int(word) if word.isdecimal() and int(word) > 0 else None


def _share(word: str) -> float | None:
    try:
        share = float(word)
    except ValueError:
        return None
    return share if 0 < share < math.inf else None


def _duration(word: str) -> float | None:
    try:
        read = seconds(word, setting="--sweep")
    except SettingsError:
        return None
    return read if read > 0 else None


SETTINGS: Mapping[str, Setting] = {
    one.name: one
    for one in (
        Setting(
            "capacity",
            "records per channel",
            "channel_capacity",
            _count,
            number,
            "capacity=10,100,1000",
            counts=True,
        ),
        Setting(
            "load",
            "load, as part of what is sustained",
            "load",
            _share,
            number,
            "load=0.5,0.8,1.0",
        ),
        Setting(
            "timeout",
            "alignment timeout of adaptive mode",
            "alignment_timeout",
            _duration,
            duration,
            "timeout=10ms,100ms,1s",
            takes_text=True,
        ),
        Setting(
            "service",
            "time per record at a sink",
            "sink_delay",
            _duration,
            duration,
            "service=1ms,10ms",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Point:
    """What came out at a value; None stands for the modes that the setting does not touch."""

    value: Value | None
    modes: Sequence[Mode]
    experiment: Experiment


def plans_of(plan: Plan, sweep: Sweep) -> list[tuple[Value | None, Plan]]:
    """The comparisons that a sweep consists of. The alignment timeout is adaptive mode's alone: the
    other modes run once, to be seen beside it."""
    plans: list[tuple[Value | None, Plan]] = []
    modes = list(plan.modes)
    if sweep.setting.name == "timeout":
        modes = [mode for mode in modes if mode == "adaptive"]
        others = [mode for mode in plan.modes if mode != "adaptive"]
        if others:
            plans.append((None, _part(plan, "others", others)))
    for place, value in enumerate(sweep.values):
        order = modes if place % 2 == 0 else list(reversed(modes))
        given: Any = value.text if sweep.setting.takes_text else value.number
        settings = {sweep.setting.field: given}
        plans.append((value, _part(plan, f"{sweep.setting.name}-{value.text}", order, **settings)))
    return plans


def _part(plan: Plan, folder: str, order: Sequence[Mode], **settings: Any) -> Plan:
    return dataclasses.replace(
        plan, folder=plan.folder / folder, modes=order, order=order, kills=False, **settings
    )


async def run_sweep(plan: Plan, sweep: Sweep, observer: Observer) -> list[Point]:
    """Run the comparison at each value, one after the other.

    Raises JobFailed if the first run at a value does not end: then no load is known there."""
    parts = plans_of(plan, sweep)
    reference: Life | None = None
    loaded = sweep.setting.name == "load"
    total = sum(count_of_runs(part, Life()) for _, part in parts) + loaded
    numbered = _Numbered(observer, total)
    if loaded:
        numbered.what = "reference"
        first = dataclasses.replace(plan, folder=plan.folder / "reference")
        reference = await run_reference(first, numbered)
    points = []
    for value, part in parts:
        numbered.what = sweep.setting.name + (f" {value.text}" if value else ": the other modes")
        experiment = await run_experiment(part, numbered, reference)
        points.append(Point(value, part.modes, experiment))
    return points


class _Numbered:
    """Numbers the runs of all points, and says which point they are of."""

    def __init__(self, observer: Observer, total: int) -> None:
        self._observer = observer
        self._total = total
        self._number = 0
        self.what = ""

    def began(self, number: int, total: int, what: str) -> None:
        """A run of a point has begun."""
        self._number += 1
        self._observer.began(self._number, self._total, f"{self.what}, {what}")

    def advanced(self, share: float) -> None:
        """It is so far."""
        self._observer.advanced(share)

    def ended(self, summary: str) -> None:
        """It has ended."""
        self._observer.ended(summary)
