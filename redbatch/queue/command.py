"""Implementation of `redbatch queue`, and its error messages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from rich.console import Console

from redbatch.exit_codes import report_failure
from redbatch.queue import view
from redbatch.queue_target import NoQueueError, find_queue
from redbatch.urls import mask_password
from shared.connection import NotPermittedError, QueueConnections
from shared.errors import RedisUnreachableError
from shared.process.settings import read_settings
from shared.producer import QueueStats, queue_stats
from shared.settings import QueueSettings

WATCH_EVERY_S = 1.0


def show_queue(redis_url: str | None, name: str | None, *, in_json: bool, watch: bool) -> int:
    """Prints the queue, once or every second until Ctrl-C. Returns the exit code: 1 if the queue cannot be read."""
    try:
        redis_url, name = find_queue(redis_url, name)
    except NoQueueError as error:
        return report_failure(str(error))
    settings = read_settings(QueueSettings, {"redis_url": redis_url})
    console = Console(highlight=False)
    try:
        with view.stats_printer(console, name, in_json=in_json) as show:
            if watch:
                asyncio.run(_watch_stats(settings, name, show))
            else:
                show(asyncio.run(_read_stats(settings, name)))
    except KeyboardInterrupt:
        return 0
    except (NotPermittedError, RedisUnreachableError, ValueError) as error:
        return report_failure(f"{mask_password(redis_url)}: {error}")
    return 0


async def _read_stats(settings: QueueSettings, queue_name: str) -> QueueStats:
    """Returns the state of the queue. Raises RedisUnreachableError, or ValueError if the URL of Redis is invalid."""
    queue = QueueConnections(settings, queue_name, f"redbatch-cli-{os.getpid()}")
    try:
        return await queue_stats(queue.connection("queue"), queue.keys)
    finally:
        await queue.close()


async def _watch_stats(settings: QueueSettings, queue_name: str, show: Callable[[QueueStats], None]) -> None:
    """Passes the state of the queue to `show` every second, until cancelled. Raises the errors of `_read_stats`."""
    queue = QueueConnections(settings, queue_name, f"redbatch-cli-{os.getpid()}")
    connection = queue.connection("queue")
    try:
        while True:
            show(await queue_stats(connection, queue.keys))
            await asyncio.sleep(WATCH_EVERY_S)
    finally:
        await queue.close()
