"""Measures a job in the checkpoint modes, in child processes: same load, same interval, and a kill.

It loads no job and prints nothing: the command that starts a child comes from above, and what was
measured goes back up as values.
"""
