"""The command line: reads arguments, shows jobs and checkpoints, and decides exit codes.

It alone prints. It never touches a task: it sees a running job through its handle and views.
"""
