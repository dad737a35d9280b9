"""Asks a gateway's /livez again and again, from a process of its own: what else the tests do cannot delay it.

`python -m tests.chaos.onlooker PORT` prints a line when it begins, and goes on until its standard input ends. Then it
prints how long each answer took. Who waits long asks seldom; so the times of those are added who would have asked
meanwhile, had they come as regularly as before.
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import time

LOOK_S = 0.005


def main() -> None:
    """Looks on."""
    took = []
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=10)
    print("looking", flush=True)  # noqa: T201 - what the test waits for
    while not select.select([sys.stdin], [], [], LOOK_S)[0]:
        asked = time.monotonic()
        connection.request("GET", "/livez")
        answer = connection.getresponse()
        answer.read()
        waited = time.monotonic() - asked
        while waited > 0:
            took.append(waited)
            waited -= LOOK_S
        assert answer.status == http.HTTPStatus.OK
    print(json.dumps(took))  # noqa: T201 - what it was asked for


if __name__ == "__main__":
    main()
