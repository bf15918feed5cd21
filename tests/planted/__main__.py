"""Let the simulator find planted faults.

python -m tests.planted                     every fault: the seeds 0, 1, 2, ... up to the limit
python -m tests.planted timer-lost          one of them, or several
python -m tests.planted --record            keep what was found in found.json
python -m tests.planted --check             those recorded as found within 200 seeds, quickly
python -m tests.planted --control           the package as it is: nothing may be found
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.planted.hunting import FOUND, LIMIT, Result, found_seeds, hunt, recorded, row
from tests.planted.patching import Fault, faults

QUICK = 200
"""`--check` repeats what is recorded as found within so many seeds."""


def main(arguments: Sequence[str]) -> int:
    """Run; 0 if every fault was found, or nothing in the control."""
    options = _options(arguments)
    if options.table:
        print("\n".join(row(one) for one in faults()))
        return 0
    if options.control:
        return _control(options.seeds)
    known = {one.name: one for one in faults()}
    if unknown := {*options.names} - known.keys():
        print(f"no such fault: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in options.names or known]
    if options.check:
        seeds = found_seeds()
        chosen = [one for one in chosen if seeds.get(one.name, LIMIT) < QUICK]
    found = _hunt_all(chosen, options)
    return int(any(result.failure is None for result in found.values()))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="faults, by the names of their patches")
    parser.add_argument("--seeds", type=int, default=LIMIT, help="give up after so many")
    parser.add_argument("--first", type=int, default=0, help="go on where a hunt has given up")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--control", action="store_true")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser.parse_args(arguments)


def _hunt_all(chosen: Sequence[Fault], options: argparse.Namespace) -> dict[str, Result]:
    look = _check if options.check else lambda fault: hunt(fault, options.first, options.seeds - 1)
    found: dict[str, Result] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        names = {pool.submit(look, one): one.name for one in chosen}
        for ended in as_completed(names):
            name = names[ended]
            found[name] = ended.result()
            print(_line(name, found[name]), flush=True)
            if options.record:
                _record(name, found[name])
    return found


def _check(fault: Fault) -> Result:
    """Look where it was found the last time, and from the start only if it is not there."""
    seed = found_seeds()[fault.name]
    result = hunt(fault, seed, seed)
    return result if result.failure is not None else hunt(fault, 0, QUICK - 1)


def _line(name: str, result: Result) -> str:
    if result.failure is None:
        return f"{name:60} NOT FOUND in {result.seed + 1} seeds"
    return f"{name:60} {result.seed + 1:5} {result.invariant:16} {result.failure[:90]}"


def _control(seeds: int) -> int:
    result = hunt(None, 0, seeds - 1)
    print(_line("(nothing planted)", result))
    return int(result.failure is not None)


def _record(name: str, result: Result) -> None:
    """Keep what was found at once: a hunt takes long."""
    known = recorded() if FOUND.exists() else {}
    seed = None if result.failure is None else result.seed
    known[name] = {"seed": seed, "tried": result.seed + 1, "invariant": result.invariant}
    kept = {one.name: known[one.name] for one in faults() if one.name in known}
    FOUND.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
