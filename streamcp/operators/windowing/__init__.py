"""How windows are worked: a state machine per key, run as a keyed `process` step.

One file per kind of state: panes (windows that do not overlap), slices (sliding windows), sessions,
counts. Each tells which timers it sets, and when a key is forgotten.
"""
