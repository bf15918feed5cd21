"""Everything: `python -m benchmarks`."""

import sys

from benchmarks import backpressure, endurance, incremental, micro
from benchmarks.harness import main

sys.exit(main([micro.SUITE, backpressure.SUITE, endurance.SUITE, incremental.SUITE]))
