"""Tools to test jobs, connectors and storages with; nothing else in streamcp imports them."""
