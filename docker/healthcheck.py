"""Exits with 0 if the process of this container is healthy: `healthcheck.py [FIRST]`. Uses the standard library only.

It requests /livez of the admin port. With FIRST it requests that path instead until the answer is 200 once: a process
that has started to serve is healthy as long as it is alive. A file in /tmp records that; it survives a restart of the
container unless /tmp is a tmpfs.
"""

from __future__ import annotations

import os
import sys
from http.client import HTTPConnection
from pathlib import Path

TIMEOUT_S = 5.0
STARTED = Path.home() / "started"
"""The home of the image is /tmp, the only folder where a container may write."""


def main(first: str = "") -> int:
    """Returns the exit code."""
    path = first if first and not STARTED.exists() else "/livez"
    port = int(os.environ["REDBATCH_ADMIN_PORT"])
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except OSError as error:
        print(f"{path} on port {port}: {error}", file=sys.stderr)
        return 1
    if status != 200:  # noqa: PLR2004
        print(f"{path} on port {port}: {status}", file=sys.stderr)
        return 1
    if first:
        STARTED.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
