"""`redbatch queue`: its options and help text."""

from __future__ import annotations

import typer

from redbatch.options import Json, OnlyQueue, RedisUrl, UpPort, Watch


def queue(
    redis_url: RedisUrl = None,
    name: OnlyQueue = None,
    up: UpPort = None,
    in_json: Json = False,
    watch: Watch = False,
) -> None:
    """Show the state of all queues, or of one.

    For each queue: the waiting entries, the age of the oldest entry, and what
    its workers did in the last 30 s: requests per second, mean size of a batch,
    latency from the submission to the answer, and errors. For one queue also the
    entries that each worker holds. Requests that a gateway refuses, or answers
    from its cache, do not reach workers. Without --redis-url, it shows the
    queues of your running `redbatch up`.

    redbatch queue --watch

    redbatch queue --redis-url redis://redis:6379/0 --queue minilm --json
    """
    from redbatch.queue.command import show_queues
    from redbatch.queue_target import QueueTarget

    raise typer.Exit(show_queues(QueueTarget(redis_url, name, up), in_json=in_json, watch=watch))
