"""streamcp: async streaming pipelines whose checkpoints take milliseconds under backpressure.

Here are only the words of its users. Each is loaded when it is first used: `import streamcp` costs
next to nothing, and a connector costs something only where it is used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamcp.api.connected import (
        ConnectedBroadcast,
        ConnectedStreams,
        KeyedConnectedBroadcast,
    )
    from streamcp.api.jobs import Job
    from streamcp.api.parameters import JobFactory, job
    from streamcp.api.sources import source
    from streamcp.api.streams import BroadcastStream, KeyedStream, SinkStep, Step, Stream
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
        TransactionLost,
    )
    from streamcp.operators.calls import call_id
    from streamcp.operators.context import BroadcastContext, KeyContext
    from streamcp.operators.failures import Failure
    from streamcp.operators.sinks import PlainSink, Sink, StagedSink, Transaction, TransactionalSink
    from streamcp.operators.sources import Source
    from streamcp.operators.tags import Tag
    from streamcp.operators.watermarks import Watermarks
    from streamcp.runners.handle import JobHandle as Running
    from streamcp.runners.handle import JobResult
    from streamcp.runners.savepoints import Savepoint
    from streamcp.serialization.registry import codec

__all__ = [
    "BroadcastContext",
    "BroadcastStream",
    "BuildError",
    "CheckpointDamaged",
    "CheckpointFailed",
    "Checkpoints",
    "CircuitBreaker",
    "ConnectedBroadcast",
    "ConnectedStreams",
    "DefinitionError",
    "Failure",
    "Fenced",
    "Job",
    "JobFactory",
    "JobFailed",
    "JobResult",
    "KeyContext",
    "KeyedConnectedBroadcast",
    "KeyedStream",
    "MissingExtra",
    "PlainSink",
    "Rate",
    "Restart",
    "RestoreRefused",
    "Retry",
    "Running",
    "Savepoint",
    "SerializationError",
    "SettingsError",
    "Sink",
    "SinkStep",
    "Source",
    "StagedSink",
    "Step",
    "StepFailed",
    "StorageError",
    "Stream",
    "StreamcpError",
    "Tag",
    "Transaction",
    "TransactionLost",
    "TransactionalSink",
    "Watermarks",
    "call_id",
    "codec",
    "collect",
    "discard",
    "files",
    "generator",
    "items",
    "job",
    "source",
    "stdout",
]

# Where each word lives, and what it is called there if it has another name.
_HOMES = {
    "files": "streamcp.connectors.files",
    "BroadcastContext": "streamcp.operators.context:BroadcastContext",
    "BroadcastStream": "streamcp.api.streams:BroadcastStream",
    "BuildError": "streamcp.errors:BuildError",
    "CheckpointDamaged": "streamcp.errors:CheckpointDamaged",
    "CheckpointFailed": "streamcp.errors:CheckpointFailed",
    "Checkpoints": "streamcp.config:Checkpoints",
    "CircuitBreaker": "streamcp.config:CircuitBreaker",
    "ConnectedBroadcast": "streamcp.api.connected:ConnectedBroadcast",
    "ConnectedStreams": "streamcp.api.connected:ConnectedStreams",
    "DefinitionError": "streamcp.errors:DefinitionError",
    "Failure": "streamcp.operators.failures:Failure",
    "Fenced": "streamcp.errors:Fenced",
    "Job": "streamcp.api.jobs:Job",
    "JobFactory": "streamcp.api.parameters:JobFactory",
    "JobFailed": "streamcp.errors:JobFailed",
    "JobResult": "streamcp.runners.handle:JobResult",
    "KeyContext": "streamcp.operators.context:KeyContext",
    "KeyedConnectedBroadcast": "streamcp.api.connected:KeyedConnectedBroadcast",
    "KeyedStream": "streamcp.api.streams:KeyedStream",
    "MissingExtra": "streamcp.errors:MissingExtra",
    "PlainSink": "streamcp.operators.sinks:PlainSink",
    "Rate": "streamcp.config:Rate",
    "Restart": "streamcp.config:Restart",
    "RestoreRefused": "streamcp.errors:RestoreRefused",
    "Retry": "streamcp.config:Retry",
    "Running": "streamcp.runners.handle:JobHandle",
    "Savepoint": "streamcp.runners.savepoints:Savepoint",
    "SerializationError": "streamcp.errors:SerializationError",
    "SettingsError": "streamcp.errors:SettingsError",
    "Sink": "streamcp.operators.sinks:Sink",
    "SinkStep": "streamcp.api.streams:SinkStep",
    "Source": "streamcp.operators.sources:Source",
    "StagedSink": "streamcp.operators.sinks:StagedSink",
    "Step": "streamcp.api.streams:Step",
    "StepFailed": "streamcp.errors:StepFailed",
    "StorageError": "streamcp.errors:StorageError",
    "Stream": "streamcp.api.streams:Stream",
    "StreamcpError": "streamcp.errors:StreamcpError",
    "Tag": "streamcp.operators.tags:Tag",
    "Transaction": "streamcp.operators.sinks:Transaction",
    "TransactionLost": "streamcp.errors:TransactionLost",
    "TransactionalSink": "streamcp.operators.sinks:TransactionalSink",
    "Watermarks": "streamcp.operators.watermarks:Watermarks",
    "call_id": "streamcp.operators.calls:call_id",
    "codec": "streamcp.serialization.registry:codec",
    "collect": "streamcp.connectors.collect:collect",
    "discard": "streamcp.connectors.collect:discard",
    "generator": "streamcp.connectors.generator:generator",
    "items": "streamcp.connectors.items:items",
    "job": "streamcp.api.parameters:job",
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
