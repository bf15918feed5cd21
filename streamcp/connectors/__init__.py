"""One file per system. Each is written against `streamcp.operators` alone; nothing here knows of
channels, barriers or tasks, and nothing is imported before it is named."""
