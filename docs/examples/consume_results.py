"""Takes the jobs that have ended from the results stream, and their vectors from a gateway; each at least once.

    python consume_results.py --queue minilm --gateway http://127.0.0.1:8080 --into vectors

Kill it at any time, also with `kill -9`, and start it again under the same name: what it had taken and not finished
comes again. It writes the vectors of a job to a file of their own, and gives that its name when it is whole; doing so
twice gives the same file.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import redis

GROUP = "downstream"
BLOCK_S = 5.0
PAUSE_S = 1.0
NOT_THERE = (404, 410)
"""Its results are not kept any more, or it was cancelled."""


def main() -> None:
    """Works until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/0")
    parser.add_argument("--queue", default="minilm")
    parser.add_argument("--gateway", default="http://127.0.0.1:8080")
    parser.add_argument("--key", default=os.environ.get("REDBATCH_API_KEY", ""), help="Where the gateway asks for one.")
    parser.add_argument("--name", default="consumer-1", help="The same at each start: what it had taken is its own.")
    parser.add_argument("--into", type=Path, default=Path("vectors"))
    given = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # what was said is seen, also after a kill
    given.into.mkdir(parents=True, exist_ok=True)
    client = redis.Redis.from_url(given.redis, protocol=2, socket_timeout=3 * BLOCK_S)
    stream = f"rb:{{{given.queue}}}:results"
    make_group(client, stream)
    unfinished = "0"  # what it took in its last life comes first; after that, what is new
    while True:
        taken = client.xreadgroup(GROUP, given.name, {stream: unfinished}, count=10, block=int(BLOCK_S * 1000))
        entries = taken[0][1] if taken else []
        for entry_id, fields in entries:
            if fields:  # of an entry that the stream has let go, only the id is left
                job = fields[b"id"].decode()
                while not fetch(given.gateway, given.key, f"{given.queue}.{job}", given.into / f"{job}.npy"):
                    time.sleep(PAUSE_S)
            client.xack(stream, GROUP, entry_id)  # only now: until here it would come again
        if unfinished == "0" and not entries:
            unfinished = ">"


def make_group(client: redis.Redis, stream: str) -> None:
    """Makes the group at the beginning of the stream, unless it is there."""
    try:
        client.xgroup_create(stream, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def fetch(gateway: str, key: str, job: str, path: Path) -> bool:
    """Writes the vectors of a job to a file, if there are any; returns whether there is nothing left to do."""
    request = urllib.request.Request(f"{gateway}/jobs/{job}/result", headers={"accept": "application/x-npy"})  # noqa: S310
    if key:
        request.add_header("authorization", f"Bearer {key}")
    part = path.with_suffix(".part")
    try:
        with urllib.request.urlopen(request, timeout=300) as answer, part.open("wb") as file:  # noqa: S310 - as was asked for
            while data := answer.read(2**20):
                file.write(data)
            whole = file.tell() == int(answer.headers["content-length"])
    except urllib.error.HTTPError as error:
        sys.stdout.write(f"{job}: {error.code}\n")
        return error.code in NOT_THERE
    except OSError as error:
        sys.stdout.write(f"{job}: {error}\n")
        return False
    if whole:  # otherwise the gateway went away amid it
        part.replace(path)
        sys.stdout.write(f"{job}: {path}\n")
    return whole


if __name__ == "__main__":
    main()
