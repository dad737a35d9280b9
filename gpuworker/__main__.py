"""`python -m gpuworker`: runs a worker with settings from the environment, as in a container."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping

if __name__ == "__main__":
    gc.disable()  # until `collect_rarely`: scans of what is imported, and stays, would take a sixth of the start

from setproctitle import setproctitle

from gpuworker.settings import WorkerSettings
from gpuworker.worker_group import run
from shared.process.logs import configure_logging, log_uncaught_exceptions, warn_of_variables
from shared.process.redis_advice import warn_of_default_redis
from shared.process.settings import read_settings


def main(overrides: Mapping[str, str] | None = None, ineffective_variables: Mapping[str, str] | None = None) -> int:
    """Runs a worker to its end and returns its exit code.

    Args:
        overrides: settings that take precedence over the environment.
        ineffective_variables: environment variables that have no effect, with what to do instead; they are logged.
    """
    settings = read_settings(WorkerSettings, overrides)
    setproctitle("redbatch worker")
    configure_logging("worker", settings.log_level, settings.log_format, settings.redis_address)
    log_uncaught_exceptions()
    warn_of_variables(ineffective_variables or {})
    warn_of_default_redis(settings.model_fields_set)
    return run(settings)


if __name__ == "__main__":
    sys.exit(main())
