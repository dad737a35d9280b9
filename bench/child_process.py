"""A module of the benchmarks in a process of its own: what imports torch has no place in the one that measures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from bench.machine import ROOT


class LimitError(RuntimeError):
    """The limit could not be measured; the message ends with what was printed."""


def output_of(module: str, arguments: Sequence[str], environment: Mapping[str, str], patience_s: float) -> str:
    """Runs `python -m bench.MODULE` and returns what it prints. Raises LimitError: it fails, or takes too long."""
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    try:
        ran = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=patience_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise LimitError(f"bench.{module} took longer than {patience_s:.0f} s") from None
    if ran.returncode != 0:
        raise LimitError(f"bench.{module} failed: {ran.stderr.strip()}")
    return ran.stdout
