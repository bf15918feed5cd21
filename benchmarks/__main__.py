"""Everything: `python -m benchmarks`."""

import sys

from benchmarks import backpressure, endurance, micro
from benchmarks.harness import main

sys.exit(main([micro.SUITE, backpressure.SUITE, endurance.SUITE]))
