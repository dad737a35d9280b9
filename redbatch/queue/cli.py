"""`redbatch queue`: its options and help text."""

from __future__ import annotations

import typer

from redbatch.options import Json, QueueName, RedisUrl, Watch


def queue(
    redis_url: RedisUrl = None,
    name: QueueName = None,
    in_json: Json = False,
    watch: Watch = False,
) -> None:
    """Show the state of a queue.

    Waiting entries, entries in flight, the age of the oldest entry, and the
    entries that each worker holds. Without --redis-url, it shows the queue of
    your running `redbatch up`.

    redbatch queue --watch

    redbatch queue --redis-url redis://redis:6379/0 --queue minilm --json
    """
    from redbatch.queue.command import show_queue

    raise typer.Exit(show_queue(redis_url, name, in_json=in_json, watch=watch))
