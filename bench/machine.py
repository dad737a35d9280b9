"""What was measured on: the machine and the versions. No names of hosts, no paths."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil

from redbatch import __version__
from redbatch.local_redis import find_server


def machine() -> dict[str, str | int]:
    """Returns the facts."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "sentence_transformers": version("sentence-transformers"),
        "redis": _redis(),
        "redbatch": __version__,
    }


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return " ".join(found[1].split()) if found else platform.machine()


def _redis() -> str:
    said = subprocess.run([find_server(), "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"v=([0-9.]+)", said)
    return found[1] if found else "unknown"
