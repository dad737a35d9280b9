"""What was measured on: the machine and the versions. No names of hosts, no paths."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from redbatch import __version__
from redbatch.up.local_redis import find_server

ROOT = Path(__file__).resolve().parent.parent
CODE = ("*.py", "*.lua", "*requirements*", "pyproject.toml")
"""What decides what is measured: tables and pictures change as they are written."""


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


def when_and_what() -> dict[str, str]:
    """Returns the time in UTC, to the minute, and the commit of the checkout: what a run began with."""
    return {"started": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", "commit": _commit()}


def run_line(run: Mapping[str, Any]) -> str:
    """Returns when a run began, of which commit, and how many rounds it had, for people."""
    rounds = run["repetitions"]
    return f"{run['started']} UTC, commit {run['commit']}, {rounds} round{'' if rounds == 1 else 's'}"


def _commit() -> str:
    """Its short name, and whether there are changes to what is measured that it does not have."""
    try:
        name = _git("rev-parse", "--short", "HEAD")
        return f"{name} with changes" if _git("status", "--porcelain", "--", *CODE) else name
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


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
