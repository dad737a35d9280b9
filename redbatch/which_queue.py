"""Which queue a command looks at: the one that it is told, or that of the running `redbatch up`."""

from __future__ import annotations

from redbatch.up.run_file import find_running
from shared.settings import DEFAULT_MODEL, queue_slug


class NoQueue(Exception):
    """There is none to look at; the message says what to do."""


def which_queue(redis_url: str | None, name: str | None) -> tuple[str, str]:
    """Returns the URL of a Redis and the name of a queue there. Raises NoQueue."""
    if redis_url is None:
        running = find_running()
        if running is None:
            raise NoQueue("no running `redbatch up` of yours found: start one, or name a Redis with --redis-url")
        redis_url, name = running.redis_url, name or running.queue
    return redis_url, name or queue_slug(DEFAULT_MODEL)
