"""The crash simulator: real code in a world that is made up, from one seed.

Same seed, same run, to the byte. Every part is imported from its own module: `run` (seeds, cases),
`jobs` and `kinds` (random jobs as data), `faults` (what goes wrong), `world` and `process` (lives
and what outlives them), `loop` and `clock` (schedule and time), `disk` (a disk that loses what was
not fsynced, fails, fills up and is slow), `targets`, `invariants`, `trace`.
"""
