"""What streamcp costs, and what it withstands: measured against floors in the same process.

`python -m benchmarks list` tells all of them, `python -m benchmarks run` measures.
Beside the house: imports the public words of streamcp, and of its inner floors only what a figure
needs. Nothing in streamcp imports this.
"""
