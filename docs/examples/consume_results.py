"""Reads the results of ended jobs from the results stream; each job at least once.

    python consume_results.py --into results
    python consume_results.py --redis-url redis://REDIS:6379/0 --queue minilm --gateway http://GATEWAY:8080

Without --redis-url, it reads from your running `redbatch up`, if Redbatch is installed where this program runs.

The stream carries the results themselves, or a link to results that are too large for it (see `results_payload` in
docs/jobs.md). Only for links it needs a gateway.

Kill it at any time, also with `kill -9`, and start it again under the same name: Redis delivers the unfinished entries
again. It writes the results of each job to a separate file, and renames the file when it is complete, before it
acknowledges the entry; so a job may be written twice, which gives the same file, and no job is lost. Results that it
cannot fetch, because the gateway is away or refuses the API key, stay pending: it says why, and tries again. While
Redis is away, it waits. It finds the next `redbatch up` too, whose Redis has another address.

Without API keys it fetches as the owner of each job; with keys it fetches the results of the key's owner only.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

try:
    import numpy as np
    import redis
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: run `source .venv/bin/activate` in the checkout of Redbatch, or install numpy and redis")

GROUP = "downstream"
BLOCK_S = 5.0
RETRY_S = 5.0
"""Interval at which entries are tried again whose results could not be stored."""

REDIS_RETRY_S = 1.0
REDIS_AWAY = (redis.ConnectionError, redis.TimeoutError)
EXIT_INTERRUPTED = 130
ADVICE = (
    "The next one is found by itself; it has the unread results of the one that ended if both have one --data-dir. "
    "To give options, end this program with Ctrl-C first."
)
"""What to do while there is no `redbatch up`."""


class NoRunningUpError(Exception):
    """No `redbatch up` is running, or several are; the message says what to do."""


@dataclass
class Source:
    """Where results come from: a client of Redis, the stream of a queue, and the URL of a gateway or ""."""

    client: redis.Redis
    stream: str
    gateway: str


def main() -> None:
    """Runs until it is killed, or until Redis refuses a command."""
    args = parse_arguments()
    sys.stdout.reconfigure(line_buffering=True)  # a kill must not lose printed lines
    try:
        source = find_source(args)
        if args.queue:
            check_queue(source.client, args.queue)
        make_group(source)
        args.into.mkdir(parents=True, exist_ok=True)
        sys.stdout.write(f"waiting for results: {source.stream}\n")
        consume(source, args)
    except NoRunningUpError as error:
        sys.exit(str(error))
    except REDIS_AWAY as error:
        sys.exit(f"cannot use Redis: {error} Start it, or give the URL of another with --redis-url.")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(EXIT_INTERRUPTED)


def parse_arguments() -> argparse.Namespace:
    """Returns the options."""
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
    if args.redis_url is not None and args.up is not None:
        parser.error("--up finds the Redis of a running `redbatch up`: leave out --redis-url")
    return args


def find_source(args: argparse.Namespace) -> Source:
    """Returns the source that the options mean: unless they name a Redis, that of the `redbatch up` that runs now.

    Its client connects when it is used. Raises NoRunningUpError; exits if the URL is none.
    """
    redis_url, queue, gateway = args.redis_url, "minilm", ""
    if redis_url is None:
        redis_url, queue, gateway = find_running_up(args.up)
    try:
        client = redis.Redis.from_url(redis_url, protocol=2, socket_timeout=3 * BLOCK_S)
    except ValueError as error:
        sys.exit(f"--redis-url: {error}")
    return Source(client, f"rb:{{{args.queue or queue}}}:results", args.gateway or gateway)


def find_running_up(port: int | None) -> tuple[str, str, str]:
    """Returns the URL of Redis, the queue, and the URL of the gateway of a `redbatch up`. Raises NoRunningUpError."""
    try:
        from redbatch.up.run_file import NoUpError, find_up  # noqa: PLC0415 - needed only here
    except ModuleNotFoundError:
        sys.exit("Redbatch is not installed in this Python: activate its environment, or give --redis-url")
    try:
        up = find_up(port)
    except NoUpError as error:
        raise NoRunningUpError(str(error)) from None
    if len(up.redis_urls) > 1:
        sys.exit(
            "that `redbatch up` has several Redis, each with the results of its jobs: start this program for each of "
            f"them with --redis-url and --queue {up.queue}; `up` has printed the URLs"
        )
    return up.redis_url, up.queue, up.url


def check_queue(client: redis.Redis, queue: str) -> None:
    """Exits if there is no such queue: its results would never come. A Redis user that may not look is believed."""
    try:
        names = [name.decode() for name in client.zrange("rb:queues", 0, -1)]
        if queue in names or client.exists(f"rb:{{{queue}}}:epoch"):  # without workers it exists as well
            return
    except redis.exceptions.NoPermissionError:
        return
    choices = f"the queues are {', '.join(names)}" if names else "no worker has announced one"
    sys.exit(f"--queue: there is no queue {queue}: {choices}")


def consume(source: Source, args: argparse.Namespace) -> None:
    """Stores the results of all jobs as they end."""
    while True:
        try:
            consume_while_possible(source, args)
        except REDIS_AWAY:
            source = wait_for_source(args)
            sys.stderr.write("Redis is back\n")
        except redis.ResponseError as error:
            if not str(error).startswith(("NOGROUP", "UNBLOCKED")):
                raise
            make_group(source)  # Redis has lost its data


def consume_while_possible(source: Source, args: argparse.Namespace) -> None:
    """Stores results until Redis fails. An entry is acknowledged last: until then it is delivered again."""
    client, stream = source.client, source.stream
    start_id = "0"  # first the pending entries, from the oldest; then (">") new ones
    retry_at = time.monotonic() + RETRY_S
    while True:
        streams = client.xreadgroup(GROUP, args.name, {stream: start_id}, count=10, block=int(BLOCK_S * 1000))
        entries = streams[0][1] if streams else []
        for entry_id, fields in entries:
            # An entry that the stream has trimmed has only its id.
            if not fields or process(fields, source.gateway, args.key, args.into):
                client.xack(stream, GROUP, entry_id)
        if start_id != ">":
            start_id = entries[-1][0] if entries else ">"
        elif time.monotonic() >= retry_at:
            start_id, retry_at = "0", time.monotonic() + RETRY_S


def wait_for_source(args: argparse.Namespace) -> Source:
    """Returns a source as soon as its Redis answers and has the consumer group; says once what it waits for."""
    said = ""
    while True:
        time.sleep(REDIS_RETRY_S)
        try:
            source = find_source(args)
            make_group(source)
            return source
        except NoRunningUpError as error:
            awaited, reason = "a `redbatch up` to run", f"{error}. {ADVICE}"
        except REDIS_AWAY as error:
            awaited, reason = "Redis", str(error)
        if awaited != said:
            said = awaited
            sys.stderr.write(f"waiting for {awaited}: {reason}\n")


def make_group(source: Source) -> None:
    """Creates the consumer group at the beginning of the stream, unless it exists."""
    try:
        source.client.xgroup_create(source.stream, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def process(fields: Mapping[bytes, bytes], gateway: str, key: str, into: Path) -> bool:
    """Writes the results of a job, if it has any. Returns whether the entry is done with; else it says why not."""
    path, status = into / fields[b"id"].decode(), describe_end(fields)
    if b"outputs" in fields:  # of a function: JSON
        document = b'{"outputs":%b,"errors":%b}' % (fields[b"outputs"], fields[b"errors"])
        return write(path.with_suffix(".json"), [document], status)
    if int(fields.get(b"dim", b"0")):  # vectors: float32, with NaN for inputs that failed
        vectors = np.frombuffer(fields[b"embeddings"], dtype="<f4").reshape(-1, int(fields[b"dim"]))
        file = io.BytesIO()
        np.save(file, vectors)
        return write(path.with_suffix(".npy"), [file.getvalue()], status)
    if b"result_url" not in fields:  # cancelled, or without any vector
        sys.stdout.write(f"{path.name}: {status}, no results\n")
        return True
    if not gateway:
        sys.exit(f"{path.name}: its results are not in the stream; start this program with --gateway")
    return fetch(gateway + fields[b"result_url"].decode(), fields, key, path)


def describe_end(fields: Mapping[bytes, bytes]) -> str:
    """Returns the status of a job, with the number of failed inputs: a job is done also if some failed."""
    status, num_failed = fields[b"status"].decode(), int(fields.get(b"failed", b"0"))
    return f"{status}, {num_failed} of {int(fields[b'n'])} inputs failed" if num_failed else status


def fetch(url: str, fields: Mapping[bytes, bytes], key: str, path: Path) -> bool:
    """Writes results that a gateway has. Returns whether the entry is done with; else it says why not."""
    owner, status = fields[b"owner"].decode(), describe_end(fields)
    try:
        if fields[b"op"] == b"embed":
            return write(path.with_suffix(".npy"), read_vectors(url, key, owner), status)
        document = json.dumps(read_outputs(url, key, owner)).encode()
        return write(path.with_suffix(".json"), [document], status)
    except urllib.error.HTTPError as error:
        code, message = error_of(error)
        if (fate := fate_of(code, key, owner)) is not None:
            sys.stdout.write(f"{path.name}: {status}, {fate}\n")
            return True
        hint = f" Its owner is {owner!r}: the key is another's, or it has expired." if code == "job_not_found" else ""
        sys.stderr.write(f"{path.name}: not stored, stays pending: {error.code} {message}{hint}\n")
    except (OSError, HTTPException) as error:
        sys.stderr.write(f"{path.name}: not stored, stays pending: {error}\n")
    return False


def fate_of(code: str, key: str, owner: str) -> str | None:
    """Returns why there are no results any more, or None: an API key leaves that open if it may be another tenant's."""
    if code == "job_gone":
        return "then deleted, with its results"
    is_own = not key or key.partition(".")[0] == owner
    return "but its results have expired" if code == "job_not_found" and is_own else None


def error_of(error: urllib.error.HTTPError) -> tuple[str, str]:
    """Returns code and message of an answer of the gateway; of any other server, no code and the reason."""
    try:
        body = json.load(error)["error"]
        return body["code"], body["message"]
    except (ValueError, LookupError, TypeError):
        return "", error.reason


def read_vectors(url: str, key: str, owner: str) -> Iterator[bytes]:
    """Yields a .npy file. Raises OSError: the gateway closed the connection early."""
    with request(url, key, owner, "application/x-npy") as response:
        left = int(response.headers["content-length"])
        while data := response.read(2**20):
            left -= len(data)
            yield data
    if left:
        raise OSError("the vectors are incomplete")


def read_outputs(url: str, key: str, owner: str) -> dict[str, list[Any]]:
    """Returns results and errors of all pages; `next_url` of each page leads to the next."""
    gateway = url.partition("/jobs/")[0]
    document: dict[str, list[Any]] = {}
    next_url: str | None = url.removeprefix(gateway)
    while next_url:
        with request(gateway + next_url, key, owner, "application/json") as response:
            page = json.load(response)
        next_url = page["next_url"]
        for name in ("outputs", "embeddings", "scores", "errors"):
            document.setdefault(name, []).extend(page.get(name, []))
        document["labels"] = page.get("labels", [])  # of a classifier, the same on each page
    return {name: rows for name, rows in document.items() if rows or name == "errors"}


def request(url: str, key: str, owner: str, accept: str) -> HTTPResponse:
    """Opens a URL of the gateway, with the API key; without one, as the owner of the job."""
    headers = {"accept": accept}
    if key:
        headers["authorization"] = f"Bearer {key}"
    elif owner:
        headers["x-tenant"] = owner
    message = urllib.request.Request(url, headers=headers)  # noqa: S310 - the user chose the URL
    response: HTTPResponse = urllib.request.urlopen(message, timeout=300)  # noqa: S310 - as above
    return response


def write(path: Path, pieces: Iterable[bytes], status: str) -> bool:
    """Writes a file, which appears when it is complete, and prints the status of the job. Returns True."""
    part = path.with_suffix(".part")
    try:
        with part.open("wb") as file:
            file.writelines(pieces)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sys.stdout.write(f"{path.name}: {status}\n")
    return True


if __name__ == "__main__":
    main()
