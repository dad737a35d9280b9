"""The queue that a command works on: finds it, connects to it, and reports connection errors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from redbatch.exit_codes import EXIT_FAILED, report_failure
from redbatch.up.run_file import find_running_up
from redbatch.urls import mask_password
from shared.connection import NotPermittedError, QueueConnections, RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.process.settings import read_settings
from shared.settings import DEFAULT_MODEL, QueueSettings, queue_slug


class NoQueueError(Exception):
    """There is no queue to work on; the message says what to do."""


def find_queue(redis_url: str | None, name: str | None) -> tuple[str, str]:
    """Returns the URL of a Redis and the name of a queue in it.

    Without `redis_url`, the URL and a missing `name` come from the running `redbatch up`; raises NoQueueError if there
    is none. With `redis_url`, the default of `name` is the queue of the default model.
    """
    if redis_url is None:
        running = find_running_up()
        if running is None:
            raise NoQueueError(
                "found no running `redbatch up` of yours: start one, or give the URL of a Redis with --redis-url"
            )
        redis_url, name = running.redis_url, name or running.queue
    return redis_url, name or queue_slug(DEFAULT_MODEL)


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """The URL of Redis and the name of the queue from the command line; None: see `find_queue`."""

    redis_url: str | None
    queue: str | None = None


QueueTask = Callable[[RedisConnection, Keys], Coroutine[object, object, int]]


def run_on_queue(target: QueueTarget, purpose: str, task: QueueTask, on_interrupt: int = EXIT_FAILED) -> int:
    """Runs a task on a connection to the queue; prints what failed; returns the exit code.

    `purpose` becomes part of the name of the connection; `on_interrupt` is the exit code after Ctrl-C.
    """
    try:
        url, name = find_queue(target.redis_url, target.queue)
    except NoQueueError as error:
        return report_failure(str(error))

    settings = read_settings(QueueSettings, {"redis_url": url})

    async def run() -> int:
        queue = QueueConnections(settings, name, f"redbatch-cli-{os.getpid()}")
        try:
            return await task(queue.connection(purpose), queue.keys)
        finally:
            await queue.close()

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        return on_interrupt
    except (NotPermittedError, RedisUnreachableError, ValueError) as error:
        return report_failure(f"{mask_password(url)}: {error}")
