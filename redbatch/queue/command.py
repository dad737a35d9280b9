"""Implementation of `redbatch queue`, and its error messages."""

from __future__ import annotations

import asyncio

from rich.console import Console

from redbatch.exit_codes import report_failure
from redbatch.queue import view
from redbatch.queue_target import NoQueueError, find_queue
from redbatch.urls import mask_password
from shared.connection import NotPermittedError
from shared.errors import RedisUnreachableError
from shared.process.settings import read_settings
from shared.settings import QueueSettings


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
                asyncio.run(view.watch_stats(settings, name, show))
            else:
                show(asyncio.run(view.read_stats(settings, name)))
    except KeyboardInterrupt:
        return 0
    except (NotPermittedError, RedisUnreachableError, ValueError) as error:
        return report_failure(f"{mask_password(redis_url)}: {error}")
    return 0
