"""`python -m gpuworker`: one worker, with its settings from the environment. This is what a container runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from setproctitle import setproctitle

from gpuworker.worker_group import run
from gpuworker.settings import WorkerSettings
from shared.process.logs import configure_logging
from shared.process.settings import read_settings


def main(given: Mapping[str, str] | None = None) -> int:
    """Runs a worker to its end and returns its exit code. `given` settings win over the environment."""
    settings = read_settings(WorkerSettings, given)
    setproctitle("redbatch worker")
    configure_logging("worker", settings.log_level)
    return run(settings)


if __name__ == "__main__":
    sys.exit(main())
