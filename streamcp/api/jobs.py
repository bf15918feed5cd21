"""`Job`: the name, the settings and the graph of a pipeline, and the ways to run it.

Making and describing a job touches no event loop, no file and no network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from typing_extensions import TypeVar

from streamcp.api.options import StepOptions, check_options, check_parallelism
from streamcp.api.settings import merge_settings, read_environment, read_project
from streamcp.api.streams import Stream, add_node
from streamcp.config import Checkpoints, JobSettings, Restart
from streamcp.errors import DefinitionError, StreamcpError
from streamcp.graph.logical import Connection, LogicalGraph
from streamcp.graph.validation import validate
from streamcp.operators.sources import Source
from streamcp.operators.steps import SourceStep
from streamcp.operators.watermarks import Watermarks

if TYPE_CHECKING:
    from streamcp.runners.handle import JobHandle, JobResult
    from streamcp.serialization.registry import TypeCodec

T = TypeVar("T")

# A job's checkpoints are in a folder of its name.
_NAME = re.compile(r"[\w-][\w .-]*")
# Key groups are numbered in two bytes.
_MAX_PARALLELISM = 32768


class Job:
    """A pipeline: draw it with `source` and the verbs of its streams, then run it.

    - `name`: also the folder of its checkpoints in `Checkpoints(to=...)`.
    - `checkpoints`: None for none; then a restart begins anew.
    - `parallelism`: the subtasks of every step that says nothing else.
    - `max_parallelism`: fixed for the job's life; keys are divided into so many groups.
    - `restart`: None for three attempts with exponential backoff if checkpoints are on, else none.
    - `channel_capacity`: records per channel; 4096 if nothing else is set.
    - `strict`: find records that are changed in place although others have them too, and values
      of types that no snapshot can hold, at the cost of speed; False, and True under
      `streamcp.testing`.
    - `fakes`: what `streamcp simulate` puts in the place of what is outside: a service opener for
      the opener of a `uses=`, a source for the name of a source.
    - `types`: classes of records, keys and state that no annotation of a step declares, and
      `codec`s of those that are no data classes.

    A job with checkpoints continues from its newest complete one in every run, unless `fresh`.
    Raises DefinitionError for values that no job can have.
    """

    def __init__(
        self,
        name: str,
        *,
        checkpoints: Checkpoints | None = None,
        parallelism: int = 1,
        max_parallelism: int = 128,
        restart: Restart | None = None,
        channel_capacity: int | None = None,
        strict: bool | None = None,
        fakes: Mapping[Any, Any] | None = None,
        types: Sequence[type[Any] | TypeCodec] = (),
    ) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise DefinitionError(
                f"Job({name!r}): the name is also a folder's; write letters, digits, - and _"
            )
        if type(max_parallelism) is not int or not 1 <= max_parallelism <= _MAX_PARALLELISM:
            raise DefinitionError(
                f"Job(max_parallelism={max_parallelism!r}): write 1 to {_MAX_PARALLELISM}"
            )
        check_parallelism("Job", parallelism, max_parallelism)
        self.graph = LogicalGraph(name, parallelism, max_parallelism)
        self.types = tuple(types)
        self.fakes = _checked_fakes(fakes or {})
        self._settings = {
            "checkpoints": checkpoints,
            "restart": restart,
            "channel_capacity": channel_capacity,
            "strict": strict,
        }
        merge_settings(("Job(...)", self._settings))

    def __repr__(self) -> str:
        """Show the name and the number of steps."""
        return f"Job({self.name!r}, {len(self.graph.nodes)} steps)"

    @property
    def name(self) -> str:
        """The job's name."""
        return self.graph.job

    def source(
        self,
        source: Source[T],
        /,
        *,
        watermarks: Watermarks[T] | None = None,
        **options: Unpack[StepOptions],
    ) -> Stream[T]:
        """Read records from `source`: the beginning of a stream.

        With `watermarks` its records have timestamps, and event time exists in everything that
        is made of it. A split has a watermark of its own, and the slowest one counts.

        Options: `name`, and `parallelism` if the source has splits (without them it is 1).

        Raises DefinitionError for what is no source, or no `Watermarks`."""
        if not isinstance(source, Source):
            raise DefinitionError(_no_source(source))
        check_options("source", options, max_parallelism=self.graph.max_parallelism)
        if source.splits is None and options.get("parallelism") is None:
            options["parallelism"] = 1
        if watermarks is not None and not isinstance(watermarks, Watermarks):
            raise DefinitionError(
                f"source(watermarks={watermarks!r}): write sc.Watermarks(lambda record: record.ts)"
            )
        node = add_node(self.graph, SourceStep(source, watermarks), (), options)
        return Stream(self.graph, (Connection(node),))

    def settings(
        self, command_line: Mapping[str, Any] | None = None, /, **arguments: Any
    ) -> JobSettings:
        """Merge the settings of a run: `command_line`, `arguments`, the environment, those of the
        job, and `[tool.streamcp]`; earlier ones win, None means not set.

        Raises SettingsError for an unknown name or a value that the setting cannot have."""
        return merge_settings(
            ("command line", command_line or {}),
            ("run()", arguments),
            ("environment", read_environment()),
            ("Job(...)", self._settings),
            ("[tool.streamcp]", read_project()),
        )

    def validate(self, settings: JobSettings) -> None:
        """Raise BuildError with everything that keeps the job from being built."""
        checkpoints = settings.checkpoints
        validate(
            self.graph,
            checkpoints=checkpoints is not None,
            at_least_once=checkpoints is not None and checkpoints.mode == "at_least_once",
            overlapping=checkpoints is not None and checkpoints.max_concurrent > 1,
        )

    def run(
        self,
        *,
        checkpoints: Checkpoints | None = None,
        fresh: bool | None = None,
        accept_duplicates: bool | None = None,
        allow_unmatched_state: bool | None = None,
        take_over: bool | None = None,
        restore: str | Path | None = None,
        restart: Restart | None = None,
        channel_capacity: int | None = None,
        strict: bool | None = None,
    ) -> JobResult:
        """Run the job until it ends, and return its result; blocks.

        - `fresh`: start anew instead of continuing from a checkpoint; ids keep increasing.
        - `accept_duplicates`: continue from an older checkpoint although later output was
          committed.
        - `allow_unmatched_state`: leave behind what a checkpoint holds of steps that are gone.
        - `take_over`: start although another copy of the job shows life; that one is fenced.
        - `strict`: as in `Job`.
        - `restore`: begin from the savepoint in this directory. A job that has checkpoints of its
          own is refused, except with `fresh`; once it has completed one since, it continues from
          there, and is run without `restore`.

        The first Ctrl-C or SIGTERM stops the job with a last checkpoint; then this returns. The
        second ends it at once.

        Raises JobFailed, BuildError or SettingsError; StreamcpError inside a running event loop;
        CheckpointFailed if the checkpoint of a stop fails, KeyboardInterrupt after a second signal.
        """
        _refuse_running_loop()
        from streamcp.runners import signals

        return signals.run_to_end(
            lambda: self.start(
                checkpoints=checkpoints,
                fresh=fresh,
                accept_duplicates=accept_duplicates,
                allow_unmatched_state=allow_unmatched_state,
                take_over=take_over,
                restore=restore,
                restart=restart,
                channel_capacity=channel_capacity,
                strict=strict,
            )
        )

    async def run_async(
        self,
        *,
        checkpoints: Checkpoints | None = None,
        fresh: bool | None = None,
        accept_duplicates: bool | None = None,
        allow_unmatched_state: bool | None = None,
        take_over: bool | None = None,
        restore: str | Path | None = None,
        restart: Restart | None = None,
        channel_capacity: int | None = None,
        strict: bool | None = None,
    ) -> JobResult:
        """Run the job in the running event loop until it ends, and return its result; as `run`."""
        starting = self.start(
            checkpoints=checkpoints,
            fresh=fresh,
            accept_duplicates=accept_duplicates,
            allow_unmatched_state=allow_unmatched_state,
            take_over=take_over,
            restore=restore,
            restart=restart,
            channel_capacity=channel_capacity,
            strict=strict,
        )
        async with starting as running:
            return await running.wait_finished()

    def start(
        self,
        *,
        checkpoints: Checkpoints | None = None,
        fresh: bool | None = None,
        accept_duplicates: bool | None = None,
        allow_unmatched_state: bool | None = None,
        take_over: bool | None = None,
        restore: str | Path | None = None,
        restart: Restart | None = None,
        channel_capacity: int | None = None,
        strict: bool | None = None,
    ) -> AbstractAsyncContextManager[JobHandle]:
        """Run the job beside other code: `async with job.start() as running`. Options as `run`.

        Raises BuildError or SettingsError at once, before anything is started."""
        settings = self.settings(
            checkpoints=checkpoints,
            fresh=fresh,
            accept_duplicates=accept_duplicates,
            allow_unmatched_state=allow_unmatched_state,
            take_over=take_over,
            restore=restore,
            restart=restart,
            channel_capacity=channel_capacity,
            strict=strict,
        )
        self.validate(settings)
        from streamcp.runners import local

        return local.start(self.name, self.graph, settings, self.types)


def _checked_fakes(fakes: Mapping[Any, Any]) -> dict[Any, Any]:
    for replaced, fake in fakes.items():
        if isinstance(replaced, str) and not isinstance(fake, Source):
            raise DefinitionError(
                f"Job(fakes={{{replaced!r}: ...}}): a source's name needs a source, e.g. "
                "sc.items([...])"
            )
        if not isinstance(replaced, str) and not (callable(replaced) and callable(fake)):
            raise DefinitionError(
                f"Job(fakes={{{replaced!r}: {fake!r}}}): write the function of a uses= and one "
                "that opens the fake, or the name of a source and another source"
            )
    return dict(fakes)


def _no_source(source: object) -> str:
    called = getattr(source, "__name__", type(source).__name__)
    if callable(source):
        return f"source({called}): call it: source({called}(...)); it must be made by @sc.source"
    return (
        f"source({source!r}) is no source; read a list with sc.items(...), or write @sc.source "
        "above an async generator function"
    )


def _refuse_running_loop() -> None:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise StreamcpError(
        "job.run() blocks, but an event loop is running here; write: await job.run_async()"
    )
