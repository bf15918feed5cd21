"""The figures of a comparison as rows of text: the same in the terminal and in the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamcp.checkpoint.statistics import Figure
from streamcp.cli import words
from streamcp.compare.figures import Comparison, ModeFigures
from streamcp.compare.histogram import Histogram
from streamcp.compare.latency import SHARES

_NEVER = "never completed"
_TOO_FEW = "–"
Row = tuple[str, Callable[[ModeFigures], str]]


def _p50_max(name: str, text: Callable[[Any], str]) -> Callable[[ModeFigures], str]:
    def cell(mode: ModeFigures) -> str:
        figure: Figure | None = getattr(mode, name)
        if figure is None:
            return _NEVER
        return f"{text(figure.p50)} / {text(figure.maximum)}"

    return cell


def _recovery(name: str, text: Callable[[Any], str]) -> Callable[[ModeFigures], str]:
    def cell(mode: ModeFigures) -> str:
        value = getattr(mode.recovery, name)
        return "" if value is None else text(value)

    return cell


def _failed(mode: ModeFigures) -> str:
    why = ", ".join(
        f"{count} {reason.lower().replace('_', ' ')}" for reason, count in mode.failures.items()
    )
    return f"{mode.failed} ({why})" if why else str(mode.failed)


def _records_per_second(mode: ModeFigures) -> str:
    return "no run ended" if mode.records_per_second is None else f"{mode.records_per_second:,.0f}"


def _restored(mode: ModeFigures) -> str:
    if mode.recovery.error is not None:
        return "failed"
    if mode.recovery.checkpoint is None:
        return "the beginning (no checkpoint)"
    return f"checkpoint {mode.recovery.checkpoint}"


def _verdict(mode: ModeFigures) -> str:
    return {"equal": "equal", "unequal": "UNEQUAL"}.get(mode.verdict.answer, "unknown")


_SIZE = lambda value: words.size(round(value))  # noqa: E731
_NUMBER = words.number


_CHECKPOINTS: tuple[Row, ...] = (
    ("checkpoints completed", lambda mode: str(mode.completed)),
    ("checkpoints failed", _failed),
    ("  unaligned from the start", lambda mode: str(mode.unaligned)),
    ("  escalated on the way", lambda mode: str(mode.escalated)),
    ("barrier delay, p50 / max", _p50_max("barrier_delay", words.duration)),
    ("durable delay, p50 / max", _p50_max("durable_delay", words.duration)),
    ("alignment, p50 / max", _p50_max("alignment", words.duration)),
    ("in-flight records, p50 / max", _p50_max("in_flight_records", _NUMBER)),
    ("in-flight bytes, p50 / max", _p50_max("in_flight_bytes", _SIZE)),
    ("snapshot bytes, p50 / max", _p50_max("snapshot_bytes", _SIZE)),
    ("records in channels, p50 / max", _p50_max("queued", _NUMBER)),
    ("records/s", _records_per_second),
)
_RECOVERY: tuple[Row, ...] = (
    ("kill -9 after", _recovery("killed_after", words.duration)),
    ("restored from", _restored),
    ("in-flight records replayed", _recovery("replayed", _NUMBER)),
    ("restore", _recovery("restore", words.duration)),
    ("first output after the restore", _recovery("first_output", words.duration)),
    ("  visible (committed) after", _recovery("first_commit", words.duration)),
    ("new process to first output", _recovery("back", words.duration)),
    ("output as undisturbed", _verdict),
)
_LATENCY = (
    ("due", "due → written to a sink"),
    ("visible", "due → visible (committed)"),
    ("given", "given out → written: clock started late"),
    ("waited", "due → given out: waited before the sources"),
    ("late", "lateness of the sources' own ticks"),
)
LATENCY_COLUMNS = ("count", *SHARES, "max")
LATENCY_NOTE = f"{_TOO_FEW} where fewer than 100 records lie beyond a percentile"

Cells = tuple[str, Sequence[str]]


def groups_of(comparison: Comparison) -> list[list[Cells]]:
    """The rows in groups: name, and a cell per mode."""
    groups = [_CHECKPOINTS]
    if any(mode.verdict.answer != "not asked" for mode in comparison.modes):
        groups.append(_RECOVERY)
    return [
        [(name, [cell(mode) for mode in comparison.modes]) for name, cell in group]
        for group in groups
    ]


def latency_groups(comparison: Comparison) -> list[list[Cells]]:
    """The rows of a table of latencies, a group per mode, as `LATENCY_COLUMNS`; none if there was
    no open loop. Where the load was not taken only the ticks of the sources tell something."""
    return [
        [(f"{mode.mode}: {text}", distribution(mode, name)) for name, text in _LATENCY]
        for mode in comparison.modes
        if mode.latency is not None
    ]


def distribution(mode: ModeFigures, name: str) -> list[str]:
    """The cells of a latency, as `LATENCY_COLUMNS`, or why there are none."""
    nothing = [""] * (len(SHARES) + 1)
    counts = Histogram() if mode.latency is None else getattr(mode.latency, name)
    if mode.latency is None or not counts.count:
        return ["not measured", *nothing]
    if not mode.latency.kept_up and name != "late":
        return ["load not taken", *nothing]
    return [f"{counts.count:,}", *_told(counts)]


def _told(counts: Histogram) -> list[str]:
    told = [counts.percentile(share) for share in SHARES.values()]
    texts = [_TOO_FEW if one is None else words.duration(one) for one in told]
    return [*texts, words.duration(counts.maximum)]
