"""`python -m api`: one gateway, with its settings from the environment. This is what a container runs."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping

from setproctitle import setproctitle

from api.server import run
from api.settings import GatewaySettings
from shared.process.logs import configure_logging
from shared.process.settings import read_settings


def main(given: Mapping[str, str] | None = None, listen: socket.socket | None = None) -> int:
    """Runs a gateway to its end and returns its exit code.

    `given` settings win over the environment; `listen` is a listening socket to accept from, in place of host and port.
    """
    settings = read_settings(GatewaySettings, given)
    setproctitle("redbatch gateway")
    configure_logging("gateway", settings.log_level)
    return run(settings, listen)


if __name__ == "__main__":
    sys.exit(main())
