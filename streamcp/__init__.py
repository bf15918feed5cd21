"""streamcp: async streaming pipelines whose checkpoints take milliseconds under backpressure.

Here are only the words of its users. Each is loaded when it is first used: `import streamcp` costs
next to nothing, and a connector costs something only where it is used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamcp import testing
    from streamcp.api.connected import (
        ConnectedBroadcast,
        ConnectedStreams,
        KeyedConnectedBroadcast,
    )
    from streamcp.api.jobs import Job
    from streamcp.api.joins import Joined
    from streamcp.api.keyed import KeyedStream
    from streamcp.api.parameters import JobFactory, job
    from streamcp.api.sources import source
    from streamcp.api.streams import BroadcastStream, SinkStep, Step, Stream
    from streamcp.api.windows import Windowed, WindowedStream, WindowProcess
    from streamcp.config import Checkpoints, CircuitBreaker, Rate, Restart, Retry
    from streamcp.connectors import files
    from streamcp.connectors.collect import collect, discard
    from streamcp.connectors.console import stdout
    from streamcp.connectors.generator import generator
    from streamcp.connectors.items import items
    from streamcp.errors import (
        BuildError,
        CheckpointDamaged,
        CheckpointFailed,
        DefinitionError,
        Fenced,
        JobFailed,
        MissingExtra,
        RestoreRefused,
        SerializationError,
        SettingsError,
        StepFailed,
        StorageError,
        StreamcpError,
        StrictFailed,
        TransactionLost,
    )
    from streamcp.operators.aggregates import (
        Aggregate,
        Count,
        First,
        Last,
        Max,
        Mean,
        Min,
        Sum,
        Variance,
    )
    from streamcp.operators.calls import call_id
    from streamcp.operators.collecting import Distinct, TopN
    from streamcp.operators.context import BroadcastContext, KeyContext
    from streamcp.operators.failures import Failure
    from streamcp.operators.sinks import PlainSink, Sink, StagedSink, Transaction, TransactionalSink
    from streamcp.operators.sketches import ApproximateDistinct, Quantiles
    from streamcp.operators.sources import Source
    from streamcp.operators.tags import Tag
    from streamcp.operators.ttl import Ttl
    from streamcp.operators.watermarks import Watermarks
    from streamcp.operators.windows import (
        Calendar,
        CountWindow,
        Emit,
        Global,
        Session,
        Sliding,
        Tumbling,
        WindowResult,
        Windows,
        early,
        on_each,
    )
    from streamcp.runners.handle import JobHandle as Running
    from streamcp.runners.handle import JobResult
    from streamcp.runners.savepoints import Savepoint
    from streamcp.serialization.field_types import renamed_from
    from streamcp.serialization.registry import codec
    from streamcp.state.collections import ListState, MapState

__all__ = [
    "Aggregate",
    "ApproximateDistinct",
    "BroadcastContext",
    "BroadcastStream",
    "BuildError",
    "Calendar",
    "CheckpointDamaged",
    "CheckpointFailed",
    "Checkpoints",
    "CircuitBreaker",
    "ConnectedBroadcast",
    "ConnectedStreams",
    "Count",
    "CountWindow",
    "DefinitionError",
    "Distinct",
    "Emit",
    "Failure",
    "Fenced",
    "First",
    "Global",
    "Job",
    "JobFactory",
    "JobFailed",
    "JobResult",
    "Joined",
    "KeyContext",
    "KeyedConnectedBroadcast",
    "KeyedStream",
    "Last",
    "ListState",
    "MapState",
    "Max",
    "Mean",
    "Min",
    "MissingExtra",
    "PlainSink",
    "Quantiles",
    "Rate",
    "Restart",
    "RestoreRefused",
    "Retry",
    "Running",
    "Savepoint",
    "SerializationError",
    "Session",
    "SettingsError",
    "Sink",
    "SinkStep",
    "Sliding",
    "Source",
    "StagedSink",
    "Step",
    "StepFailed",
    "StorageError",
    "Stream",
    "StreamcpError",
    "StrictFailed",
    "Sum",
    "Tag",
    "TopN",
    "Transaction",
    "TransactionLost",
    "TransactionalSink",
    "Ttl",
    "Tumbling",
    "Variance",
    "Watermarks",
    "WindowProcess",
    "WindowResult",
    "Windowed",
    "WindowedStream",
    "Windows",
    "call_id",
    "codec",
    "collect",
    "discard",
    "early",
    "files",
    "generator",
    "items",
    "job",
    "on_each",
    "renamed_from",
    "source",
    "stdout",
    "testing",
]

# Where each word lives, and what it is called there if it has another name.
_HOMES = {
    "files": "streamcp.connectors.files",
    "testing": "streamcp.testing",
    "Aggregate": "streamcp.operators.aggregates:Aggregate",
    "ApproximateDistinct": "streamcp.operators.sketches:ApproximateDistinct",
    "BroadcastContext": "streamcp.operators.context:BroadcastContext",
    "BroadcastStream": "streamcp.api.streams:BroadcastStream",
    "BuildError": "streamcp.errors:BuildError",
    "Calendar": "streamcp.operators.windows:Calendar",
    "CheckpointDamaged": "streamcp.errors:CheckpointDamaged",
    "CheckpointFailed": "streamcp.errors:CheckpointFailed",
    "Checkpoints": "streamcp.config:Checkpoints",
    "CircuitBreaker": "streamcp.config:CircuitBreaker",
    "ConnectedBroadcast": "streamcp.api.connected:ConnectedBroadcast",
    "ConnectedStreams": "streamcp.api.connected:ConnectedStreams",
    "Count": "streamcp.operators.aggregates:Count",
    "CountWindow": "streamcp.operators.windows:CountWindow",
    "DefinitionError": "streamcp.errors:DefinitionError",
    "Distinct": "streamcp.operators.collecting:Distinct",
    "Emit": "streamcp.operators.windows:Emit",
    "Failure": "streamcp.operators.failures:Failure",
    "Fenced": "streamcp.errors:Fenced",
    "First": "streamcp.operators.aggregates:First",
    "Global": "streamcp.operators.windows:Global",
    "Job": "streamcp.api.jobs:Job",
    "JobFactory": "streamcp.api.parameters:JobFactory",
    "JobFailed": "streamcp.errors:JobFailed",
    "JobResult": "streamcp.runners.handle:JobResult",
    "Joined": "streamcp.api.joins:Joined",
    "KeyContext": "streamcp.operators.context:KeyContext",
    "KeyedConnectedBroadcast": "streamcp.api.connected:KeyedConnectedBroadcast",
    "KeyedStream": "streamcp.api.keyed:KeyedStream",
    "Last": "streamcp.operators.aggregates:Last",
    "ListState": "streamcp.state.collections:ListState",
    "MapState": "streamcp.state.collections:MapState",
    "Max": "streamcp.operators.aggregates:Max",
    "Mean": "streamcp.operators.aggregates:Mean",
    "Min": "streamcp.operators.aggregates:Min",
    "MissingExtra": "streamcp.errors:MissingExtra",
    "PlainSink": "streamcp.operators.sinks:PlainSink",
    "Quantiles": "streamcp.operators.sketches:Quantiles",
    "Rate": "streamcp.config:Rate",
    "Restart": "streamcp.config:Restart",
    "RestoreRefused": "streamcp.errors:RestoreRefused",
    "Retry": "streamcp.config:Retry",
    "Running": "streamcp.runners.handle:JobHandle",
    "Savepoint": "streamcp.runners.savepoints:Savepoint",
    "SerializationError": "streamcp.errors:SerializationError",
    "Session": "streamcp.operators.windows:Session",
    "SettingsError": "streamcp.errors:SettingsError",
    "Sink": "streamcp.operators.sinks:Sink",
    "SinkStep": "streamcp.api.streams:SinkStep",
    "Sliding": "streamcp.operators.windows:Sliding",
    "Source": "streamcp.operators.sources:Source",
    "StagedSink": "streamcp.operators.sinks:StagedSink",
    "Step": "streamcp.api.streams:Step",
    "StepFailed": "streamcp.errors:StepFailed",
    "StorageError": "streamcp.errors:StorageError",
    "Stream": "streamcp.api.streams:Stream",
    "StreamcpError": "streamcp.errors:StreamcpError",
    "StrictFailed": "streamcp.errors:StrictFailed",
    "Sum": "streamcp.operators.aggregates:Sum",
    "Tag": "streamcp.operators.tags:Tag",
    "TopN": "streamcp.operators.collecting:TopN",
    "Transaction": "streamcp.operators.sinks:Transaction",
    "TransactionLost": "streamcp.errors:TransactionLost",
    "TransactionalSink": "streamcp.operators.sinks:TransactionalSink",
    "Ttl": "streamcp.operators.ttl:Ttl",
    "Tumbling": "streamcp.operators.windows:Tumbling",
    "Variance": "streamcp.operators.aggregates:Variance",
    "Watermarks": "streamcp.operators.watermarks:Watermarks",
    "WindowProcess": "streamcp.api.windows:WindowProcess",
    "WindowResult": "streamcp.operators.windows:WindowResult",
    "Windowed": "streamcp.api.windows:Windowed",
    "WindowedStream": "streamcp.api.windows:WindowedStream",
    "Windows": "streamcp.operators.windows:Windows",
    "call_id": "streamcp.operators.calls:call_id",
    "codec": "streamcp.serialization.registry:codec",
    "collect": "streamcp.connectors.collect:collect",
    "discard": "streamcp.connectors.collect:discard",
    "early": "streamcp.operators.windows:early",
    "generator": "streamcp.connectors.generator:generator",
    "items": "streamcp.connectors.items:items",
    "job": "streamcp.api.parameters:job",
    "on_each": "streamcp.operators.windows:on_each",
    "renamed_from": "streamcp.serialization.field_types:renamed_from",
    "source": "streamcp.api.sources:source",
    "stdout": "streamcp.connectors.console:stdout",
}

if not TYPE_CHECKING:  # a checker would take every misspelt word for one of these

    def __getattr__(name: str) -> object:
        """Load a word on its first use."""
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'streamcp' has no attribute {name!r}")
        module, _, attribute = home.partition(":")
        value = importlib.import_module(module)
        if attribute:
            value = getattr(value, attribute)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List the words, loaded or not."""
        return [*__all__, *(name for name in globals() if name.startswith("__"))]
