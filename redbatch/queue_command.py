"""Which queue `redbatch queue` looks at, and what it says when it cannot."""

from __future__ import annotations

import asyncio

from rich.console import Console

from redbatch import queue_view
from redbatch.process import complain
from redbatch.run_file import find_running
from redbatch.urls import mask_password
from shared.errors import RedisUnreachable
from shared.settings import DEFAULT_MODEL, queue_slug

EXIT_FAILED = 1


def show_queue(redis_url: str | None, name: str | None, *, in_json: bool, keep: bool) -> int:
    """Prints the queue, once or each second until Ctrl-C. Returns the exit code: 1 when there is none to look at."""
    if redis_url is None:
        running = find_running()
        if running is None:
            return _failed("no running `redbatch up` of yours found: start one, or name a Redis with --redis-url")
        redis_url, name = running.redis_url, name or running.queue
    name = name or queue_slug(DEFAULT_MODEL)
    console = Console(highlight=False)
    try:
        with queue_view.watching(console, name, in_json=in_json) as show:
            if keep:
                asyncio.run(queue_view.watch(redis_url, name, show))
            else:
                show(asyncio.run(queue_view.look(redis_url, name)))
    except KeyboardInterrupt:
        return 0
    except (RedisUnreachable, ValueError) as error:
        return _failed(f"{mask_password(redis_url)}: {error}")
    return 0


def _failed(message: str) -> int:
    complain(message)
    return EXIT_FAILED
