from __future__ import annotations

from contextlib import closing

from streamcp.testing.simulation.run import run_seed
from streamcp.testing.simulation.seeds import run_seeds


def test_processes_give_the_same_results_in_the_same_order() -> None:
    here = list(run_seeds(run_seed, range(6)))
    assert [result.seed for result in here] == list(range(6))
    assert list(run_seeds(run_seed, range(6), jobs=2)) == here


def test_closing_ends_the_work_that_is_left() -> None:
    asked: list[int] = []

    def run(seed: int) -> object:
        asked.append(seed)
        return run_seed(seed)

    with closing(run_seeds(run, range(1000))) as results:  # type: ignore[arg-type]
        next(results)
    assert asked == [0]
