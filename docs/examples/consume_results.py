"""Reads the results of ended jobs from the results stream; each job at least once.

    python consume_results.py --into results
    python consume_results.py --redis-url redis://redis:6379/0 --queue minilm --gateway http://127.0.0.1:8080

Without --redis-url, it reads from your running `redbatch up`, if Redbatch is installed where this program runs.

The stream carries the results themselves, or a link to results that are too large for it (see `results_payload` in
docs/jobs.md). Only for links it needs a gateway.

Kill it at any time, also with `kill -9`, and start it again under the same name: Redis delivers the unfinished entries
again. It writes the results of each job to a separate file, and renames the file when it is complete, before it
acknowledges the entry; so a job may be written twice, which gives the same file, and no job is lost.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import numpy as np
import redis

GROUP = "downstream"
BLOCK_S = 5.0
PAUSE_S = 1.0
GONE_STATUSES = (404, 410)
"""The results of the job have expired, or the job was cancelled."""


def main() -> None:
    """Runs until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis-url", help="URL of Redis. Default: that of your running `redbatch up`.")
    parser.add_argument("--up", type=int, metavar="PORT", help="Port of that `redbatch up`, if several are running.")
    parser.add_argument("--queue", help="Name of the queue. Default: that of your `redbatch up`; otherwise minilm.")
    parser.add_argument("--gateway", help="URL of a gateway, for results that are not in the stream.")
    parser.add_argument(
        "--key", default=os.environ.get("REDBATCH_API_KEY", ""), help="API key, if the gateway requires one."
    )
    parser.add_argument(
        "--name", default="consumer-1", help="Consumer name. Keep it at each start: pending entries belong to it."
    )
    parser.add_argument("--into", type=Path, default=Path("results"))
    args = parser.parse_args()
    if args.redis_url is None:
        set_defaults(args)
    elif args.up is not None:
        parser.error("--up finds the Redis of a running `redbatch up`: leave out --redis-url")
    sys.stdout.reconfigure(line_buffering=True)  # a kill must not lose printed lines
    args.into.mkdir(parents=True, exist_ok=True)
    client = redis.Redis.from_url(args.redis_url, protocol=2, socket_timeout=3 * BLOCK_S)
    stream = f"rb:{{{args.queue or 'minilm'}}}:results"
    make_group(client, stream)
    start_id = "0"  # first the pending entries of the previous run, then (">") new ones
    while True:
        streams = client.xreadgroup(GROUP, args.name, {stream: start_id}, count=10, block=int(BLOCK_S * 1000))
        entries = streams[0][1] if streams else []
        for entry_id, fields in entries:
            if fields:  # an entry that the stream has trimmed has only its id
                while not process(fields, args.gateway or "", args.key, args.into):
                    time.sleep(PAUSE_S)
            client.xack(stream, GROUP, entry_id)  # acknowledge last: until here the entry is delivered again
        if start_id == "0" and not entries:
            start_id = ">"


def set_defaults(args: argparse.Namespace) -> None:
    """Sets the URLs and the queue that are not given to those of a running `redbatch up`; exits if it finds none."""
    try:
        from redbatch.up.run_file import NoUpError, find_up  # noqa: PLC0415 - needed only here
    except ModuleNotFoundError:
        sys.exit("Redbatch is not installed in this Python: give the URL of Redis with --redis-url")
    try:
        up = find_up(args.up)
    except NoUpError as error:
        sys.exit(str(error))
    args.redis_url = up.redis_url
    args.queue = args.queue or up.queue
    args.gateway = args.gateway or up.url


def make_group(client: redis.Redis, stream: str) -> None:
    """Creates the consumer group at the beginning of the stream, unless it exists."""
    try:
        client.xgroup_create(stream, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def process(fields: Mapping[bytes, bytes], gateway: str, key: str, into: Path) -> bool:
    """Writes the results of a job, if it has any. Returns whether the job needs no further attempt."""
    path = into / fields[b"id"].decode()
    if b"outputs" in fields:  # of a function: JSON
        document = b'{"outputs":%b,"errors":%b}' % (fields[b"outputs"], fields[b"errors"])
        return write(path.with_suffix(".json"), [document])
    if int(fields.get(b"dim", b"0")):  # vectors: float32, with NaN for inputs that failed
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, np.frombuffer(fields[b"embeddings"], dtype="<f4").reshape(-1, int(fields[b"dim"])))
        return finish(part, path.with_suffix(".npy"))
    if b"result_url" not in fields:  # cancelled, or without any vector
        return finish(None, path)
    if not gateway:
        sys.exit(f"{path.name}: its results are not in the stream; start this program with --gateway")
    return fetch(gateway + fields[b"result_url"].decode(), fields[b"op"], key, path)


def fetch(url: str, op: bytes, key: str, path: Path) -> bool:
    """Writes results that a gateway has. Returns whether the job needs no further attempt."""
    try:
        if op == b"embed":
            return write(path.with_suffix(".npy"), read_vectors(url, key))
        return write(path.with_suffix(".json"), [json.dumps(read_outputs(url, key)).encode()])
    except urllib.error.HTTPError as error:
        sys.stdout.write(f"{path.name}: {error.code}\n")
        return error.code in GONE_STATUSES
    except OSError as error:
        sys.stdout.write(f"{path.name}: {error}\n")
        return False


def read_vectors(url: str, key: str) -> Iterator[bytes]:
    """Yields a .npy file. Raises OSError: the gateway closed the connection early."""
    with request(url, key, "application/x-npy") as response:
        left = int(response.headers["content-length"])
        while data := response.read(2**20):
            left -= len(data)
            yield data
    if left:
        raise OSError("the vectors are incomplete")


def read_outputs(url: str, key: str) -> dict[str, list[Any]]:
    """Returns results and errors of all pages; `next_url` of each page leads to the next."""
    gateway = url.partition("/jobs/")[0]
    document: dict[str, list[Any]] = {}
    next_url: str | None = url.removeprefix(gateway)
    while next_url:
        with request(gateway + next_url, key, "application/json") as response:
            page = json.load(response)
        next_url = page["next_url"]
        for name in ("outputs", "embeddings", "errors"):
            document.setdefault(name, []).extend(page.get(name, []))
    return {name: rows for name, rows in document.items() if rows or name == "errors"}


def request(url: str, key: str, accept: str) -> HTTPResponse:
    """Opens a URL of the gateway."""
    headers = {"accept": accept} | ({"authorization": f"Bearer {key}"} if key else {})
    message = urllib.request.Request(url, headers=headers)  # noqa: S310 - the user chose the URL
    response: HTTPResponse = urllib.request.urlopen(message, timeout=300)  # noqa: S310 - as above
    return response


def write(path: Path, pieces: Iterable[bytes]) -> bool:
    """Writes a file, which appears when it is complete. Returns True."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.writelines(pieces)
    return finish(part, path)


def finish(part: Path | None, path: Path) -> bool:
    """Renames a complete file and reports it. Returns True."""
    if part is not None:
        part.replace(path)
    sys.stdout.write(f"{path.name}: {'done' if part is not None else 'no results'}\n")
    return True


if __name__ == "__main__":
    main()
