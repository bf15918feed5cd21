"""Which engines there are: how each is installed and started, about how fast it is, what it lacks.

The rates only decide how many records an engine is given, so that all take about as long; they are
those of two quiet cores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
HOME_VARIABLE = "BENCHMARK_PEERS"


def default_home() -> Path:
    """The directory with an environment for each peer."""
    return Path(os.environ.get(HOME_VARIABLE) or CHECKOUT / ".peers")


@dataclass(frozen=True)
class Environment:
    """A virtual environment of one peer. `java`: it needs a Java runtime too."""

    name: str
    requirements: tuple[str, ...]
    java: bool = False

    def folder(self, home: Path) -> Path:
        """Where it is."""
        return home / self.name

    def python(self, home: Path) -> Path:
        """Its interpreter."""
        return self.folder(home) / "bin" / "python"

    def is_installed(self, home: Path) -> bool:
        """Tell whether its installation went to its end."""
        return (self.folder(home) / INSTALLED).is_file()


INSTALLED = "installed.txt"  # written last: the names and versions of what is in the environment

ENVIRONMENTS: Mapping[str, Environment] = {
    one.name: one
    for one in (
        Environment("bytewax", ("bytewax==0.21.1",)),
        Environment("csp", ("csp==0.19.1",)),
        Environment("streamz", ("streamz==0.6.6",)),
        # The mock broker is part of confluent-kafka, which Quix Streams has anyway.
        Environment("quix", ("quixstreams==3.28.0",)),
        Environment("faust", ("faust-streaming==0.15.3", "confluent-kafka==2.12.2")),
        Environment("pathway", ("pathway==0.33.0",)),
        Environment("pyflink", ("apache-flink==2.3.0",), java=True),
    )
}


@dataclass(frozen=True)
class Engine:
    """One engine in one setting.

    - `module`: the file in `engines` that runs it; `environment`: None for this interpreter.
    - `rates`: about how many records per second, by workload.
    - `lacks`: why it has no figure for a workload.
    - `slow`: less than a thirtieth of the bare loop's speed: a few rounds tell enough.
    """

    name: str
    module: str
    environment: str | None
    rates: Mapping[str, float]
    lacks: Mapping[str, str] = field(default_factory=dict)
    slow: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def records(self, workload: str, seconds: float) -> int:
        """How many keep it busy for about so long."""
        return max(1000, round(self.rates[workload] * seconds, -3).__trunc__())

    def installed_in(self, home: Path) -> bool:
        """Tell whether it can be run."""
        return self.environment is None or ENVIRONMENTS[self.environment].is_installed(home)

    def remedy(self, home: Path) -> str:
        """What to do if it cannot."""
        to = "" if home == default_home() else f" --to {home}"
        return f"not installed: python -m benchmarks.peers.install {self.environment}{to}"

    def interpreter(self, home: Path) -> str:
        """The interpreter that runs it."""
        if self.environment is None:
            return sys.executable
        return str(ENVIRONMENTS[self.environment].python(home))


LOOP = Engine(
    "bare loop",
    "on_loop",
    None,
    {"stateless": 9e6, "count": 6e6, "windows": 6e6, "calls": 18_000},
    {"count_with_checkpoints": "it has none: the loop without them is the floor"},
)
STREAMCP = Engine(
    "streamcp",
    "on_streamcp",
    None,
    {
        "stateless": 7e6,
        "count": 4e6,
        "count_with_checkpoints": 4e6,
        "windows": 2e6,
        "calls": 18_000,
    },
)
PEERS = (
    Engine(
        "Bytewax",
        "on_bytewax",
        "bytewax",
        {
            "stateless": 4e6,
            "count": 1.4e6,
            "count_with_checkpoints": 1.4e6,
            "windows": 40_000,
            "calls": 14_000,
        },
    ),
    Engine(
        "csp",
        "on_csp",
        "csp",
        {"stateless": 1.2e6, "count": 1.1e6, "windows": 1.2e6},
        {
            "count_with_checkpoints": "csp has no checkpoints",
            "calls": "csp has no step for coroutines",
        },
    ),
    Engine(
        "Pathway",
        "on_pathway",
        "pathway",
        {
            "stateless": 100_000,
            "count": 80_000,
            "count_with_checkpoints": 80_000,
            "windows": 30_000,
            "calls": 6_000,
        },
        slow=True,
    ),
    Engine(
        "Streamz",
        "on_streamz",
        "streamz",
        {"stateless": 60_000, "count": 60_000, "calls": 10_000},
        {
            "count_with_checkpoints": "Streamz has no checkpoints",
            "windows": "Streamz has no event time: its windows are by arrival",
        },
        slow=True,
    ),
    Engine(
        "Quix Streams",
        "on_quix",
        "quix",
        {"stateless": 60_000, "count": 40_000, "count_with_checkpoints": 40_000},
        {
            "windows": "its windows close when a later record comes: the last ones never do",
            "calls": "Quix Streams has no asyncio",
        },
        slow=True,
    ),
    Engine(
        "Faust",
        "on_faust",
        "faust",
        {"stateless": 6_000, "count": 2_000},
        {
            "count_with_checkpoints": "its changelog needs a topic that the mock broker has not",
            "windows": "Faust has no watermarks: nothing says when a window is over",
            "calls": "Faust keeps no order of calls",
        },
        slow=True,
    ),
    Engine(
        "PyFlink, thread mode",
        "on_pyflink",
        "pyflink",
        {
            "stateless": 60_000,
            "count": 20_000,
            "count_with_checkpoints": 20_000,
            "windows": 6_000,
        },
        {"calls": "PyFlink refuses coroutines in thread mode"},
        slow=True,
        options={"mode": "thread"},
    ),
    Engine(
        "PyFlink, process mode",
        "on_pyflink",
        "pyflink",
        {
            "stateless": 30_000,
            "count": 12_000,
            "count_with_checkpoints": 12_000,
            "windows": 3_000,
            "calls": 1_500,
        },
        slow=True,
        options={"mode": "process"},
    ),
)
