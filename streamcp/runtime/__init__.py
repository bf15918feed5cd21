"""The tasks: they carry out the decisions of `checkpoint` and run the steps of `operators`.

Every task of a process shares one thread; at every `await` all data is in a channel, in a hand,
or in a pending list, so a barrier finds everything by plain calls.
"""
