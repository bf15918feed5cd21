"""Flink without Python: the topology of its own benchmark, in Java, on its local mini cluster.

The class is compiled against the jars that apache-flink ships, which needs a JDK. Links between the
subtasks are local: queues in memory, as those of streamcp are.
"""

from __future__ import annotations

import subprocess
from importlib.metadata import distribution
from pathlib import Path

from benchmarks.peers.engines import flink_rest
from benchmarks.peers.work import Results, Task, serve

SOURCE = Path(__file__).with_name("FlinkTopology.java")
SETTINGS = {
    # Three slot sharing groups of four subtasks each.
    "taskmanager.numberOfTaskSlots": "12",
    "taskmanager.memory.network.min": "256m",
    "taskmanager.memory.network.max": "256m",
}
# Flink serialises records by reflection, which Java 17 must be told to allow.
OPENED = ("java.base/java.lang=ALL-UNNAMED", "java.base/java.util=ALL-UNNAMED")


def flink_topology(task: Task) -> Results:
    jars = Path(str(distribution("apache-flink").locate_file("pyflink/lib/*")))
    folder = Path(task.folder)
    subprocess.run(["javac", "-cp", str(jars), "-d", str(folder), str(SOURCE)], check=True)
    port = flink_rest.free_port()
    chosen = {
        **flink_rest.settings(port, task.options["checkpoints"], task.options["every"]),
        **SETTINGS,
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
    }
    command = ["java", "-Xmx2g", *(f"--add-opens={one}" for one in OPENED), "-cp"]
    command += [f"{folder}:{jars}", "FlinkTopology", *(f"{k}={v}" for k, v in chosen.items())]
    results = Results()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
        try:
            job = flink_rest.wait_running(port)
            results.begin()
            options = task.options
            results.extra = flink_rest.watch(port, job, options["warm_up"], options["seconds"])
            results.end()
        finally:
            running.kill()
    return results


if __name__ == "__main__":
    serve("apache-flink", {"flink_topology": flink_topology})
