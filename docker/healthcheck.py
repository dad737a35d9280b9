"""Exits with 0 if this container's process is healthy: `healthcheck.py [FIRST]`. Of the standard library alone.

It asks the admin port for /livez. With FIRST it asks for that path until it was answered with 200 once: what has begun
to serve is healthy for as long as it lives. That it has is noted in /tmp, which a container that is started again has
kept, unless it is a tmpfs.
"""

from __future__ import annotations

import os
import sys
from http.client import HTTPConnection
from pathlib import Path

PATIENCE_S = 5.0
BEGUN = Path.home() / "begun"
"""In the one place where a container may write."""


def main(first: str = "") -> int:
    """Returns the exit code."""
    path = first if first and not BEGUN.exists() else "/livez"
    port = int(os.environ["REDBATCH_ADMIN_PORT"])
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
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
        BEGUN.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
