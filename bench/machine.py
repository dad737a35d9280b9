"""The machine and the versions of a measurement, without host names and paths."""

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

from redbatch.up.local_redis import find_server
from shared.process.version import __version__

ROOT = Path(__file__).resolve().parent.parent
CODE = ("*.py", "*.lua", "*requirements*", "pyproject.toml")
"""Files whose changes affect a measurement. Tables and pictures do not: a run itself writes them."""


def machine() -> dict[str, str | int]:
    """Returns hardware, operating system and versions."""
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


def run_metadata() -> dict[str, str]:
    """Returns the start of a run: the time in UTC, to the minute, and the commit of the checkout."""
    return {"started": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", "commit": _commit()}


def describe_run(run: Mapping[str, Any]) -> str:
    """Returns start time, commit and number of rounds of a run, as text."""
    rounds = run["repetitions"]
    return f"{run['started']} UTC, commit {run['commit']}, {rounds} round{'' if rounds == 1 else 's'}"


def _commit() -> str:
    """Returns the short name of HEAD, followed by "with changes" if files of CODE differ from it."""
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
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        match = None
    return " ".join(match[1].split()) if match else platform.machine()


def _redis() -> str:
    output = subprocess.run([find_server(), "--version"], check=True, capture_output=True, text=True).stdout
    match = re.search(r"v=([0-9.]+)", output)
    return match[1] if match else "unknown"
