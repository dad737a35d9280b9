"""Commands that do something on a queue in Redis: which one, on what connection, and what is said if that fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from redbatch.up.run_file import find_running
from redbatch.urls import mask_password
from shared.connection import NotPermittedError, QueueConnections, RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.process.settings import complain, read_settings
from shared.settings import DEFAULT_MODEL, QueueSettings, queue_slug

EXIT_FAILED = 1


class NoQueueError(Exception):
    """There is none to look at; the message says what to do."""


def find_queue(redis_url: str | None, name: str | None) -> tuple[str, str]:
    """Returns the URL of a Redis and the name of a queue there. Raises NoQueueError."""
    if redis_url is None:
        running = find_running()
        if running is None:
            raise NoQueueError("no running `redbatch up` of yours found: start one, or name a Redis with --redis-url")
        redis_url, name = running.redis_url, name or running.queue
    return redis_url, name or queue_slug(DEFAULT_MODEL)


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """The Redis and the queue, as they were given."""

    redis_url: str | None
    queue: str | None = None


QueueTask = Callable[[RedisConnection, Keys], Coroutine[object, object, int]]


def on_queue(where: QueueTarget, purpose: str, work: QueueTask) -> int:
    """Runs some work on a connection to the queue that is meant, and says what went wrong; returns the exit code."""
    try:
        url, name = find_queue(where.redis_url, where.queue)
    except NoQueueError as error:
        return failed(str(error))

    settings = read_settings(QueueSettings, {"redis_url": url})

    async def run() -> int:
        queue = QueueConnections(settings, name, f"redbatch-cli-{os.getpid()}")
        try:
            return await work(queue.connection(purpose), queue.keys)
        finally:
            await queue.close()

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        return EXIT_FAILED
    except (NotPermittedError, RedisUnreachableError, ValueError) as error:
        return failed(f"{mask_password(url)}: {error}")


def failed(message: str) -> int:
    """Says what does not work; returns the exit code for that."""
    complain(message)
    return EXIT_FAILED
