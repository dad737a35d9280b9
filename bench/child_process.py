"""Runs a module of the benchmarks in a separate process, so that the process that measures does not import torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from bench.machine import ROOT


class ModuleError(RuntimeError):
    """A module failed or timed out; the message ends with its stderr."""


def run_module(module: str, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> str:
    """Runs `python -m bench.MODULE` and returns its stdout. Raises ModuleError if it fails or exceeds `timeout_s`."""
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    try:
        process = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise ModuleError(f"bench.{module} took longer than {timeout_s:.0f} s") from None
    if process.returncode != 0:
        raise ModuleError(f"bench.{module} failed: {process.stderr.strip()}")
    return process.stdout
