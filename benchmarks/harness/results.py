"""What came out, as a file: rows, raw data, configuration, machine and commit of each benchmark.

Each benchmark carries its machine: a file may be made in several runs.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.rows import RIGHT, Row, Verdict


@dataclass(frozen=True, slots=True)
class Result:
    """One benchmark's answer."""

    name: str
    question: str
    rows: Sequence[Row]
    raw: Mapping[str, Any] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def is_wrong(self) -> bool:
        """Tell whether something is wrong, however fast it is."""
        return any(row.target == RIGHT and row.verdict == "missed" for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return {
            "name": self.name,
            "question": self.question,
            "seconds": round(self.seconds, 1),
            "options": dict(self.options),
            "configuration": dict(self.configuration),
            "machine": dict(self.machine),
            "rows": [row.as_dict() for row in self.rows],
            "raw": dict(self.raw),
        }

    @classmethod
    def from_dict(cls, result: Mapping[str, Any]) -> Result:
        """Read what `as_dict` gave."""
        values = dict(result)
        values["rows"] = [Row.from_dict(row) for row in values["rows"]]
        return cls(**values)


def with_verdict(results: Iterable[Result], verdict: Verdict) -> list[Row]:
    """All rows that are judged so."""
    return [row for result in results for row in result.rows if row.verdict == verdict]


def write_results(file: Path, results: Iterable[Result]) -> None:
    """Write all of them, to seven digits; compressed if the file is called `.gz`."""
    content = {"benchmarks": [_rounded(result.as_dict()) for result in results]}
    data = (json.dumps(content, ensure_ascii=False) + "\n").encode()
    file.write_bytes(gzip.compress(data, mtime=0) if file.suffix == ".gz" else data)


def _rounded(value: Any) -> Any:
    """The clock tells no more, and its noise cannot be compressed."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def read_results(file: Path) -> dict[str, Result]:
    """Read them, by name."""
    data = file.read_bytes()
    content = json.loads(gzip.decompress(data) if file.suffix == ".gz" else data)
    results = map(Result.from_dict, content["benchmarks"])
    return {result.name: result for result in results}


def add_results(file: Path, results: Sequence[Result]) -> None:
    """Write them into a file that may exist: its other benchmarks stay as they are."""
    known = read_results(file) if file.exists() else {}
    write_results(file, (known | {result.name: result for result in results}).values())
