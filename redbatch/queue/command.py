"""What `redbatch queue` does, and what it says when it cannot."""

from __future__ import annotations

import asyncio

from rich.console import Console

from redbatch.queue import view
from shared.process.settings import complain, read_settings
from redbatch.urls import mask_password
from redbatch.queue_target import NoQueue, which_queue
from shared.errors import RedisUnreachable
from shared.connection import NotPermitted
from shared.settings import QueueSettings

EXIT_FAILED = 1


def show_queue(redis_url: str | None, name: str | None, *, in_json: bool, keep: bool) -> int:
    """Prints the queue, once or each second until Ctrl-C. Returns the exit code: 1 when there is none to look at."""
    try:
        redis_url, name = which_queue(redis_url, name)
    except NoQueue as error:
        return _failed(str(error))
    settings = read_settings(QueueSettings, {"redis_url": redis_url})
    console = Console(highlight=False)
    try:
        with view.watching(console, name, in_json=in_json) as show:
            if keep:
                asyncio.run(view.watch(settings, name, show))
            else:
                show(asyncio.run(view.look(settings, name)))
    except KeyboardInterrupt:
        return 0
    except (NotPermitted, RedisUnreachable, ValueError) as error:
        return _failed(f"{mask_password(redis_url)}: {error}")
    return 0


def _failed(message: str) -> int:
    complain(message)
    return EXIT_FAILED
