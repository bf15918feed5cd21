"""The assistants, killed by kill -9 at random moments: nothing lost, and no answer paid for twice.

More kills than the suite has time for: python tests/examples/test_assistants_killed.py --kills 50
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import orjson
import pytest

from streamcp.runtime.call_ids import StepCallIds
from streamcp.storage import layout
from streamcp.storage.journal_format import decode_file

MESSAGES = 120
KILLS = 3


class Run:
    """A directory in which the job runs, is killed, and runs again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "out" / "calls.jsonl"
        self.durable: dict[str, int] = {}  # id of a journaled call: length of the log at the kill

    def start(self) -> subprocess.Popen[bytes]:
        options = ["--messages", str(MESSAGES), "--users", "20", "--rate", "60"]
        options += ["--latency", "200ms", "--patience", "800ms", "--busy", "0.1"]
        options += ["--out", "out", "--checkpoints", "checkpoints", "--every", "300ms"]
        command = [sys.executable, "-m", "streamcp", "run", "streamcp.examples.assistants"]
        return subprocess.Popen([*command, "--quiet", *options], cwd=self.folder)

    def calls(self) -> list[dict[str, str]]:
        """The service's own log."""
        lines = self.log.read_bytes().splitlines() if self.log.exists() else []
        return [orjson.loads(line) for line in lines]

    def kill(self, rnd: random.Random) -> bool:
        """Kill it when some more calls have been made; False if it has finished before."""
        until = len(self.calls()) + rnd.randint(10, 60)
        process = self.start()
        while len(self.calls()) < until and process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.005)
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            return False
        for key in self.journaled():
            self.durable.setdefault(key, len(self.calls()))
        return True

    def journaled(self) -> list[str]:
        """The ids of the calls whose answers the newest journal holds."""
        directory = self.folder / "checkpoints" / "assistants" / layout.JOURNAL
        names = sorted(path.name for path in directory.glob("0*")) if directory.exists() else []
        newest = [name for name in names if name.split("-")[0] == names[-1].split("-")[0]]
        ids = []
        for name in newest:
            file = decode_file((directory / name).read_bytes(), name)
            if file is not None:
                step = StepCallIds("assistants", "answer", file.head.life)
                ids += [step.text((a.content, a.number or 0)) for a in file.answers]
        return ids

    def written(self, name: str) -> list[dict[str, Any]]:
        paths = sorted((self.folder / "out" / name).glob("*.jsonl"))
        return [orjson.loads(line) for path in paths for line in path.read_bytes().splitlines()]

    # ---- what must hold at the end

    def check(self) -> None:
        replies, dead = self.written("replies"), self.written("dead-letters")
        numbers = Counter(one["number"] for one in [*replies, *dead])
        assert numbers == Counter(range(MESSAGES))
        refused = sorted(one["number"] for one in dead)  # users side by side have no order
        assert refused == [n for n in range(MESSAGES) if n % 50 == 49]
        self.check_order(replies)
        self.check_calls(replies)

    def check_order(self, replies: list[dict[str, Any]]) -> None:
        """Each user's messages were answered in their order, in one conversation."""
        by_user = defaultdict(list)
        for reply in replies:
            by_user[reply["user"]].append((reply["turn"], reply["number"]))
        for turns in by_user.values():
            turns.sort()
            assert [turn for turn, _ in turns] == list(range(1, len(turns) + 1))
            assert [number for _, number in turns] == sorted(number for _, number in turns)

    def check_calls(self, replies: list[dict[str, Any]]) -> None:
        """No journaled call was made again, and what was written is what the service answered."""
        calls = self.calls()
        for key, length in self.durable.items():
            again = [call for call in calls[length:] if call["key"] == key]
            assert not again, f"{key} was journaled, and asked for again"
        answered = {call["text"] for call in calls if call["outcome"] == "answered"}
        assert {reply["text"] for reply in replies} <= answered


def kill_and_finish(folder: Path, kills: int, seed: int) -> Run:
    """Kill it so often, let it finish, and check all."""
    run, rnd = Run(folder), random.Random(seed)
    for _ in range(kills):
        if not run.kill(rnd):
            break
    assert run.start().wait() == 0
    run.check()
    return run


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is of POSIX systems")
@pytest.mark.timeout(180)
def test_assistants_killed_at_random_moments_lose_nothing_and_ask_nothing_twice(
    tmp_path: Path,
) -> None:
    run = kill_and_finish(tmp_path, KILLS, seed=1)
    assert run.durable, "nothing was in the journal at any kill"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rnd, killed = random.Random(options.seed), 0
    while killed < options.kills:
        with tempfile.TemporaryDirectory() as folder:
            few = min(rnd.randint(1, 5), options.kills - killed)
            run = kill_and_finish(Path(folder), few, rnd.getrandbits(32))
            killed += few
            print(f"{killed} kills, {len(run.durable)} journaled calls, {len(run.calls())} lines")


if __name__ == "__main__":
    main()
