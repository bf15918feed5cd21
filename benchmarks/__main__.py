"""Everything: `python -m benchmarks`."""

import sys

from benchmarks import backpressure, endurance, incremental, micro, windows
from benchmarks.harness import main

sys.exit(main([micro.SUITE, backpressure.SUITE, endurance.SUITE, incremental.SUITE, windows.SUITE]))
