"""`python -m gpuworker`: runs a worker with settings from the environment, as in a container."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from setproctitle import setproctitle

from gpuworker.settings import WorkerSettings
from gpuworker.worker_group import run
from shared.process.logs import configure_logging
from shared.process.settings import read_settings


def main(overrides: Mapping[str, str] | None = None) -> int:
    """Runs a worker to its end and returns its exit code. The `overrides` take precedence over the environment."""
    settings = read_settings(WorkerSettings, overrides)
    setproctitle("redbatch worker")
    configure_logging("worker", settings.log_level)
    return run(settings)


if __name__ == "__main__":
    sys.exit(main())
