"""`python -m benchmarks`: see README.md beside this file."""

import sys

from benchmarks.harness.command import main
from benchmarks.suites import SUITES

if __name__ == "__main__":  # fresh processes import this module by another name
    sys.exit(main(SUITES))
