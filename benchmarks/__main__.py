"""Everything: `python -m benchmarks`."""

import sys

from benchmarks import backpressure, endurance, incremental, joins, journal, micro, timers, windows
from benchmarks.harness import main
from benchmarks.nexmark import measuring as nexmark

SUITES = (micro, backpressure, endurance, incremental, journal, windows, joins, timers, nexmark)

sys.exit(main([module.SUITE for module in SUITES]))
