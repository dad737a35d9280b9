"""Exits with 0 if this container's process is healthy: `healthcheck.py PORT [PATH]`. Of the standard library alone."""

from __future__ import annotations

import sys
from http.client import HTTPConnection

PATIENCE_S = 5.0


def main(port: str, path: str = "/livez") -> int:
    """Asks the admin port."""
    connection = HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        return 0 if connection.getresponse().status == 200 else 1  # noqa: PLR2004
    except OSError as error:
        print(f"{path} on port {port}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
