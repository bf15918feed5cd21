"""Tools to test jobs, connectors and storages with; nothing else in streamcp imports them.

`trial` tries out a whole job by hand, in virtual time; `verify_operator` runs a step in every way
there is. The other tools are imported from their own modules: `clock` (time moved by hand), `loop`
(an event loop in virtual time, with real threads), `running` (a job in virtual time), `steps` (a
single step), `simulating` (the crash simulator in a test), `failing` (a storage that fails),
`storage_checks`.
"""

from streamcp.elements import EndOfInput, IdleStatus, Watermark
from streamcp.testing.given import Advance, At, On
from streamcp.testing.trials import Trial, trial
from streamcp.testing.verifying import verify_operator

__all__ = [
    "Advance",
    "At",
    "EndOfInput",
    "IdleStatus",
    "On",
    "Trial",
    "Watermark",
    "trial",
    "verify_operator",
]
