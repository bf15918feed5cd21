"""What a reader must know of the machine, the versions and the checkout to repeat a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

_PACKAGES = ("anyio", "orjson", "uvloop", "xxhash")


def machine() -> dict[str, Any]:
    """Look it up, now."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "optimised": "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""),
        "packages": {name: _version(name) for name in _PACKAGES},
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "file system": _file_system(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain")),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    lines = (_read("/proc/cpuinfo") or "").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _file_system() -> str | None:
    """The kind of file system that temporary files, and so checkpoints, are on."""
    folder = Path(tempfile.gettempdir()).resolve()
    mounts = [line.split() for line in (_read("/proc/mounts") or "").splitlines()]
    holding = [(mount[1], mount[2]) for mount in mounts if folder.is_relative_to(mount[1])]
    return max(holding, key=lambda mount: len(mount[0]))[1] if holding else None


def _read(file: str) -> str | None:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None
