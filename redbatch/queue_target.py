"""The queue that a command works on: finds it, connects to it, and reports connection errors."""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from redbatch.exit_codes import EXIT_FAILED, report_failure
from redbatch.up.run_file import NoUpError, find_up
from redbatch.urls import mask_password
from shared.connection import QueueConnections, RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.model_names import DEFAULT_MODEL, queue_slug
from shared.process.log_text import printable_line
from shared.process.settings import read_settings
from shared.producer import QueueStats, list_queues, queue_stats
from shared.redis_errors import KeyMovedError
from shared.settings import QueueSettings


def find_queue(target: QueueTarget) -> tuple[str, str]:
    """Returns the URL of a Redis and the name of a queue in it. Raises NoUpError: see `find_up`."""
    redis_url, name = target.redis_url, target.queue
    if redis_url is None:
        running = find_up(target.up)
        redis_url, name = running.redis_url, name or running.queue
    return redis_url, name or queue_slug(DEFAULT_MODEL)


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """The URL of Redis, the name of the queue, and the port of a running `redbatch up` from the command line.

    Without a URL, it and a missing name come from the running `up` that has the port, or from the only one. With a
    URL, the default of the name is the queue of the default model.
    """

    redis_url: str | None
    queue: str | None = None
    up: int | None = None


QueueTask = Callable[[RedisConnection, Keys], Coroutine[object, object, int]]


def run_on_queue(target: QueueTarget, purpose: str, task: QueueTask, on_interrupt: int = EXIT_FAILED) -> int:
    """Runs a task on a connection to the queue; prints what failed; returns the exit code.

    A queue that the target names must exist. `purpose` becomes part of the name of the connection. `on_interrupt` is
    the exit code after Ctrl-C.
    """
    try:
        url, name = find_queue(target)
    except NoUpError as error:
        return report_failure(str(error))

    settings = read_settings(QueueSettings, {"redis_url": url})

    async def run() -> int:
        queue = QueueConnections(settings, name, f"redbatch-cli-{os.getpid()}")
        try:
            connection = queue.shared_connection(purpose)
            if target.queue is not None and (problem := await _find_problem(connection, queue.keys)):
                return report_failure(problem)
            return await task(connection, queue.keys)
        finally:
            await queue.close()

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        return on_interrupt
    except RedisUnreachableError as error:
        return report_failure(f"{mask_password(url)}: {printable_line(error.log_message)}")
    except ValueError as error:
        return report_failure(f"{mask_password(url)}: {error}")


async def _find_problem(connection: RedisConnection, keys: Keys) -> str:
    """Returns that there is no such queue, with those there are; empty if there is one.

    A queue without an announcement, whose workers ended long ago, exists as long as Redis has anything of it.
    """
    try:
        announced = sorted(await list_queues(connection))
    except KeyMovedError:  # on a server of a Redis Cluster that has the queue, but not the list of all queues
        announced = []
    if keys.queue in announced or _exists(await queue_stats(connection, keys)):
        return ""
    close = difflib.get_close_matches(keys.queue, announced, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    choices = f"the queues are {', '.join(announced)}" if announced else "no worker has announced one"
    return f"there is no queue {keys.queue}: {choices}{hint}"


def _exists(stats: QueueStats) -> bool:
    return bool(stats.epoch or stats.entries or stats.workers or stats.dead_letters or stats.open_jobs)
