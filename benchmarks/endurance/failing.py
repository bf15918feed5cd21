"""A step that raises: the job restarts and loses nothing, or gives up and says where."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.endurance import kills
from benchmarks.endurance.sizes import Sizes
from benchmarks.harness import Child, Row, Run, check
from streamcp.config import Mode

CHILD = "benchmarks.endurance.children"


async def failing(run: Run[Sizes]) -> Sequence[Row]:
    """A step that raises at one record, once or always."""
    rows: list[Row] = []
    for mode in run.sizes.modes:
        run.say(mode)
        rows += await _failing(run.sizes, mode, always=False)
    return rows + await _failing(run.sizes, "unaligned", always=True)


async def _failing(sizes: Sizes, mode: Mode, *, always: bool) -> list[Row]:
    n = sizes.failing_records
    options = {"records": n, "at": n // 2, "always": always, "mode": mode}
    with tempfile.TemporaryDirectory() as folder:
        async with Child([CHILD, "failing", folder, json.dumps(options)]) as child:
            lines = [json.loads(line) for line in await child.lines()]
            await child.wait()
        written = sorted(int(line) for line in kills.read_lines(Path(folder) / "out"))
    if not lines:
        return [check(f"failing step, {mode}: ran", False, child.errors[-500:])]
    restored = sum(line["event"] == "JobRestored" for line in lines)
    ended = lines[-1]
    if always:
        error = ended.get("error", "")
        return [
            check("failing always: gives up", ended["outcome"] == "failed", error),
            check("failing always: tried as often as allowed", restored == 3, f"{restored} times"),
            check(
                "failing always: the error names the step, the file and the record",
                all(part in error for part in ("explode", "children.py", str(n // 2))),
            ),
        ]
    return [
        check(
            f"failing once, {mode}: restarted and finished",
            ended.get("outcome") == "finished" and ended.get("attempts") == 2 and restored == 1,
            json.dumps(ended),
        ),
        check(f"failing once, {mode}: every record once", written == list(range(n))),
    ]
