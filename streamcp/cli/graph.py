"""`streamcp graph`: the steps of a job and the tasks they become. Nothing is run."""

from __future__ import annotations

from typing import Any, TextIO

from streamcp.api.jobs import Job
from streamcp.cli import errors, options
from streamcp.cli.job_command import job_command
from streamcp.cli.words import print_json
from streamcp.graph.logical import Broadcast, Connection, Forward, HashByKey, Node, Rebalance
from streamcp.graph.physical import PhysicalPlan, effective_parallelism, plan
from streamcp.graph.render import render_mermaid, render_text

_DOC = """Print the steps of a job and how they become tasks; run nothing."""


def graph_command() -> Any:
    """The command as it is before the job is known."""
    return job_command("graph", _DOC, options.graph_parameters(), _show)


def _show(job: Job, values: dict[str, Any], stdout: TextIO) -> int:
    job.validate(job.settings())
    physical = plan(job.graph)
    if values["json"]:
        print_json(as_json(job, physical), stdout)
    elif values["mermaid"]:
        print(render_mermaid(job.graph, physical), end="", file=stdout)
    else:
        print(render_text(job.graph, physical) + _channels(physical), end="", file=stdout)
    return errors.DONE


def _channels(physical: PhysicalPlan) -> str:
    parallelism = {task.name: task.parallelism for task in physical.tasks}
    lines = [
        f"    {edge.sender} -> {edge.receiver}: {len(edge.pairs(*ends))}"
        for edge in physical.edges
        for ends in [(parallelism[edge.sender], parallelism[edge.receiver])]
    ]
    return "\n".join(["  channels", *lines, ""]) if lines else ""


def as_json(job: Job, physical: PhysicalPlan) -> dict[str, Any]:
    """Give steps, tasks and channels as plain JSON values."""
    return {
        "job": job.name,
        "max_parallelism": physical.max_parallelism,
        "steps": [_step(job, node) for node in job.graph.nodes],
        "tasks": [
            {
                "name": task.name,
                "parallelism": task.parallelism,
                "steps": [node.label for node in task.members],
            }
            for task in physical.tasks
        ],
        "channels": [
            {
                "edge": edge.name,
                "sender": str(channel.sender),
                "receiver": str(channel.receiver),
                "exchange": _exchange(edge.connection),
                "back": edge.is_back,
            }
            for edge, channel in physical.channels()
        ],
    }


def _step(job: Job, node: Node) -> dict[str, Any]:
    return {
        "name": node.label,
        "verb": node.verb,
        "parallelism": effective_parallelism(job.graph, node),
        "place": str(node.place),
        "inputs": [
            {
                "step": one.node.label,
                "output": one.output,
                "exchange": _exchange(one),
                "input": one.port + 1,
                "back": one.back,
            }
            for one in node.inputs
        ],
    }


def _exchange(connection: Connection) -> str:
    match connection.exchange:
        case Forward():
            return "forward"
        case Rebalance():
            return "rebalance"
        case HashByKey():
            return "by_key"
        case Broadcast():
            return "broadcast"
