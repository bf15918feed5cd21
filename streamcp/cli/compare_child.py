"""`python -m streamcp.cli.compare_child JOB [options]`: one run of `streamcp compare`.

Started by the command with its own words behind JOB; what is to be done comes by standard input.
"""

from __future__ import annotations

import sys

from streamcp.cli import compare_options
from streamcp.compare import child


def main() -> int:
    """Load the job as the parent has, and run it as ordered. Returns the exit code."""
    target, arguments = sys.argv[1], sys.argv[2:]
    return child.main(lambda: compare_options.load_job(target, arguments)[0])


if __name__ == "__main__":
    sys.exit(main())
