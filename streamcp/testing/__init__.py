"""Tools to test jobs, connectors and storages with; nothing else in streamcp imports them.

Every tool is imported from its own module: `clock` (time moved by hand), `loop` (an event loop in
virtual time, with real threads), `running` (a job in virtual time), `steps` (a single step),
`simulating` (the crash simulator in a test), `failing` (a storage that fails), `storage_checks`.
"""
