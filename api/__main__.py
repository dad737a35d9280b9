"""`python -m api`: one gateway, with its settings from the environment. Containers run this."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Mapping

if __name__ == "__main__":
    gc.disable()  # until `collect_rarely`: scans of what is imported, and stays, would take a sixth of the start

from setproctitle import setproctitle

from api.server import run
from api.settings import GatewaySettings
from shared.process.logs import configure_logging, log_uncaught_exceptions, warn_of_variables
from shared.process.redis_advice import warn_of_default_redis
from shared.process.settings import read_settings


def main(
    overrides: Mapping[str, str] | None = None,
    listen: socket.socket | None = None,
    ineffective_variables: Mapping[str, str] | None = None,
) -> int:
    """Runs a gateway until it stops and returns its exit code.

    Args:
        overrides: settings that take precedence over the environment.
        listen: a listening socket to accept from, instead of host and port.
        ineffective_variables: environment variables that have no effect, with what to do instead; they are logged.
    """
    settings = read_settings(GatewaySettings, overrides)
    setproctitle("redbatch gateway")
    configure_logging("gateway", settings.log_level, settings.log_format, settings.redis_address)
    log_uncaught_exceptions()
    warn_of_variables(ineffective_variables or {})
    warn_of_default_redis(settings.model_fields_set)
    return run(settings, listen)


if __name__ == "__main__":
    sys.exit(main())
