"""Commands that do something on a queue in Redis: which one, on what connection, and what is said if that fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from shared.process.settings import complain, read_settings
from redbatch.urls import mask_password
from redbatch.queue_target import NoQueue, which_queue
from shared.errors import RedisUnreachable
from shared.keys import Keys
from shared.connection import Link, NotPermitted, Queue
from shared.settings import QueueSettings

EXIT_FAILED = 1


@dataclass(frozen=True, slots=True)
class Where:
    """The Redis and the queue, as they were given."""

    redis_url: str | None
    queue: str | None = None


Work = Callable[[Link, Keys], Coroutine[object, object, int]]


def on_queue(where: Where, purpose: str, work: Work) -> int:
    """Runs some work on a connection to the queue that is meant, and says what went wrong; returns the exit code."""
    try:
        url, name = which_queue(where.redis_url, where.queue)
    except NoQueue as error:
        return failed(str(error))

    settings = read_settings(QueueSettings, {"redis_url": url})

    async def run() -> int:
        queue = Queue(settings, name, f"redbatch-cli-{os.getpid()}")
        try:
            return await work(queue.link(purpose), queue.keys)
        finally:
            await queue.close()

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        return EXIT_FAILED
    except (NotPermitted, RedisUnreachable, ValueError) as error:
        return failed(f"{mask_password(url)}: {error}")


def failed(message: str) -> int:
    """Says what does not work; returns the exit code for that."""
    complain(message)
    return EXIT_FAILED
