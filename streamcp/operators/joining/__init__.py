"""How joins are worked: a state machine per key, run as a keyed step with two inputs.

One file per kind of join. Each tells what it keeps of both inputs, until when, and which timers it
sets. Like windows, they know no channels and no checkpoints.
"""
