"""What Flink's REST interface tells of the checkpoints of a job."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from typing import Any

# Every checkpoint is remembered, and told as it is now.
SETTINGS = {
    "web.checkpoints.history": "1000",
    "rest.cache.checkpoint-statistics.timeout": "1 ms",
}
MODES = {
    "aligned": {"execution.checkpointing.unaligned.enabled": "false"},
    "unaligned": {
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.aligned-checkpoint-timeout": "0 ms",
    },
    "timeout 100 ms": {
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.aligned-checkpoint-timeout": "100 ms",
    },
}


def settings(port: int, mode: str, every: str = "1 s") -> dict[str, str]:
    """Checkpoints in `mode`, and a REST interface at `port`."""
    return {
        "rest.bind-port": str(port),
        "rest.port": str(port),
        "execution.checkpointing.interval": every,
        **MODES[mode],
        **SETTINGS,
    }


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def ask(port: int, path: str) -> dict[str, Any]:
    """GET `path`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
        return dict(json.load(answer))


def wait_running(port: int, limit: float = 150.0) -> str:
    """Return the id of the only job once all of its tasks run. Raises TimeoutError."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        try:
            for job in ask(port, "jobs/overview")["jobs"]:
                tasks = job["tasks"]
                if tasks["total"] == tasks["running"] > 0:
                    return str(job["jid"])
        except (OSError, KeyError):
            pass  # the cluster is only starting
        time.sleep(0.2)
    raise TimeoutError(f"Flink's tasks did not all run within {limit:.0f} s")


def watch(port: int, job: str, warm_up: float, seconds: float) -> dict[str, Any]:
    """Wait, and tell all checkpoints that were triggered in the `seconds` after `warm_up`."""
    time.sleep(warm_up)
    first = time.time() * 1000
    time.sleep(seconds)
    history = ask(port, f"jobs/{job}/checkpoints")["history"]
    return told(history, first, time.time() * 1000)


def told(history: list[dict[str, Any]], first: float, now: float) -> dict[str, Any]:
    """Tell the checkpoints triggered from `first` on: the complete ones, and how old an unfinished
    one is. Times are milliseconds."""
    late = [one for one in history if one["trigger_timestamp"] >= first]
    going_on = [one for one in history if one["status"] == "IN_PROGRESS"]
    return {
        "checkpoints": [
            {"seconds": one["end_to_end_duration"] / 1000, "bytes": one["persisted_data"]}
            for one in sorted(late, key=lambda one: int(one["id"]))
            if one["status"] == "COMPLETED"
        ],
        "failed": sum(one["status"] == "FAILED" for one in late),
        "unfinished": [(now - one["trigger_timestamp"]) / 1000 for one in going_on],
    }
