"""One file per engine, run in a process and an interpreter of its own: `python -m FILE TASK`.

Each imports the functions and the protocol of `benchmarks.peers.work`, its own package, and nothing
else. Its docstring says in which setting the engine is shown, and why.
"""
