"""Reads ended jobs from the results stream, and their vectors from a gateway; each job at least once.

    python consume_results.py --queue minilm --gateway http://127.0.0.1:8080 --into vectors

Kill it at any time, also with `kill -9`, and start it again under the same name: Redis delivers the unfinished entries
again. It writes the vectors of each job to a separate file, and renames the file when it is complete; writing a job
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
GONE_STATUSES = (404, 410)
"""The results of the job have expired, or the job was cancelled."""


def main() -> None:
    """Runs until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/0")
    parser.add_argument("--queue", default="minilm")
    parser.add_argument("--gateway", default="http://127.0.0.1:8080")
    parser.add_argument(
        "--key", default=os.environ.get("REDBATCH_API_KEY", ""), help="API key, if the gateway requires one."
    )
    parser.add_argument(
        "--name", default="consumer-1", help="Consumer name. Keep it at each start: pending entries belong to it."
    )
    parser.add_argument("--into", type=Path, default=Path("vectors"))
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # a kill must not lose printed lines
    args.into.mkdir(parents=True, exist_ok=True)
    client = redis.Redis.from_url(args.redis, protocol=2, socket_timeout=3 * BLOCK_S)
    stream = f"rb:{{{args.queue}}}:results"
    make_group(client, stream)
    start_id = "0"  # first the pending entries of the previous run, then (">") new ones
    while True:
        streams = client.xreadgroup(GROUP, args.name, {stream: start_id}, count=10, block=int(BLOCK_S * 1000))
        entries = streams[0][1] if streams else []
        for entry_id, fields in entries:
            if fields:  # an entry that the stream has trimmed has only its id
                job = fields[b"id"].decode()
                while not fetch(args.gateway, args.key, f"{args.queue}.{job}", args.into / f"{job}.npy"):
                    time.sleep(PAUSE_S)
            client.xack(stream, GROUP, entry_id)  # acknowledge last: until here the entry is delivered again
        if start_id == "0" and not entries:
            start_id = ">"


def make_group(client: redis.Redis, stream: str) -> None:
    """Creates the consumer group at the beginning of the stream, unless it exists."""
    try:
        client.xgroup_create(stream, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def fetch(gateway: str, key: str, job: str, path: Path) -> bool:
    """Writes the vectors of a job, if any, to a file. Returns whether the job needs no further attempt."""
    request = urllib.request.Request(f"{gateway}/jobs/{job}/result", headers={"accept": "application/x-npy"})  # noqa: S310
    if key:
        request.add_header("authorization", f"Bearer {key}")
    part = path.with_suffix(".part")
    try:
        with urllib.request.urlopen(request, timeout=300) as response, part.open("wb") as file:  # noqa: S310 - the user chose the URL
            while data := response.read(2**20):
                file.write(data)
            complete = file.tell() == int(response.headers["content-length"])
    except urllib.error.HTTPError as error:
        sys.stdout.write(f"{job}: {error.code}\n")
        return error.code in GONE_STATUSES
    except OSError as error:
        sys.stdout.write(f"{job}: {error}\n")
        return False
    if complete:  # otherwise the gateway closed the connection early
        part.replace(path)
        sys.stdout.write(f"{job}: {path}\n")
    return complete


if __name__ == "__main__":
    main()
