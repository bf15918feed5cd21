"""Nexmark alone: `python -m benchmarks.nexmark`."""

import sys

from benchmarks.harness import main
from benchmarks.nexmark.measuring import SUITE

sys.exit(main([SUITE]))
