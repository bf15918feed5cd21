"""Files of a file system: sources that read lines, JSON lines and CSV, and a sink that writes
JSON lines exactly once."""

from streamcp.connectors.files.sink import json_lines
from streamcp.connectors.files.sources import lines, read_csv, read_json_lines

__all__ = ["json_lines", "lines", "read_csv", "read_json_lines"]
