"""Requests a gateway's /livez repeatedly from a separate process, so that the other work of a test cannot delay it.

`python -m tests.chaos.latency_probe PORT` prints a line when it starts and runs until its standard input ends. Then it
prints the latency of each answer, in s, as JSON; of one that does not come, TIMEOUT_S. A slow answer delays the next
request; the latencies of the requests that are missing for that reason are added, as if they had been sent on schedule
(coordinated omission).
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import time

PERIOD_S, TIMEOUT_S = 0.005, 10.0


def main() -> None:
    """Probes until standard input ends, then prints the latencies."""
    latencies_s = []
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=TIMEOUT_S)
    print("probing", flush=True)  # noqa: T201 - what the test waits for
    while not select.select([sys.stdin], [], [], PERIOD_S)[0]:
        sent = time.monotonic()
        try:
            connection.request("GET", "/livez")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == http.HTTPStatus.OK
        except TimeoutError:
            connection.close()  # the next request opens it again
        latency_s = time.monotonic() - sent
        while latency_s > 0:
            latencies_s.append(latency_s)
            latency_s -= PERIOD_S
    print(json.dumps(latencies_s))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
