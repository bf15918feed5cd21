"""The logical graph (what the user drew) and the physical graph (tasks, subtasks, channels).

Describing never runs anything: nothing here imports `runtime`, `coordinator` or `runners`.
"""
