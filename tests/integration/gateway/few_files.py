"""Runs a gateway that may have MAX_FILES open files."""

from __future__ import annotations

import os
import resource
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]
MODULE = "tests.integration.gateway.few_files"


def env(max_files: int) -> dict[str, str]:
    """Returns the additional environment of such a gateway."""
    folders = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]
    return {"MAX_FILES": str(max_files), "PYTHONPATH": os.pathsep.join(folders)}


def main() -> None:
    """Lowers the limit, which no process may raise again, and runs the gateway."""
    max_files = int(os.environ["MAX_FILES"])
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    runpy.run_module("api", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
