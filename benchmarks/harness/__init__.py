"""What all benchmarks share. It knows no benchmark; nothing here knows what is measured.

- `rows`: figures with intervals and targets; `timing`, `ratios`: measuring in turns, and the disk.
- `suites`: what a benchmark is; `cells`, `children`: fresh processes.
- `running`, `results`, `tables`, `comparing`, `command`: the command line and its files.
"""

from benchmarks.harness.cells import in_fresh_process
from benchmarks.harness.children import Child
from benchmarks.harness.ratios import Work, ratio, ratio_rows, startup
from benchmarks.harness.rows import (
    Interval,
    Row,
    Target,
    at_least,
    at_most,
    bootstrap_interval,
    check,
    median_interval,
    median_row,
    ratio_of_medians,
    skipped,
)
from benchmarks.harness.suites import Benchmark, Run, Suite
from benchmarks.harness.timing import Seconds, fsync_time, paired, timed

__all__ = [
    "Benchmark",
    "Child",
    "Interval",
    "Row",
    "Run",
    "Seconds",
    "Suite",
    "Target",
    "Work",
    "at_least",
    "at_most",
    "bootstrap_interval",
    "check",
    "fsync_time",
    "in_fresh_process",
    "median_interval",
    "median_row",
    "paired",
    "ratio",
    "ratio_of_medians",
    "ratio_rows",
    "skipped",
    "startup",
    "timed",
]
