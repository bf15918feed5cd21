"""Tools to test jobs, connectors and storages with; nothing else in streamcp imports them.

Every tool is imported from its own module: `clock` (time moved by hand), `loop` (an event loop in
virtual time), `storage_checks`.
"""
