"""Implementation of `redbatch queue`."""

from __future__ import annotations

from functools import partial

from rich.console import Console

from redbatch.queue import view
from redbatch.queue_target import QueueTarget, run_on_queue
from redbatch.state_printer import print_states, state_printer
from shared.connection import RedisConnection
from shared.keys import Keys
from shared.producer import queue_stats


def show_queue(redis_url: str | None, name: str | None, *, in_json: bool, watch: bool) -> int:
    """Prints the queue, once or every second until Ctrl-C. Returns the exit code: 1 if the queue cannot be read."""

    async def show(connection: RedisConnection, keys: Keys) -> int:
        as_text, as_json = partial(view.as_text, keys.queue), partial(view.as_json, keys.queue)
        with state_printer(Console(highlight=False), as_text, as_json, in_json=in_json) as show_stats:
            await print_states(partial(queue_stats, connection, keys), show_stats, watch=watch)
        return 0

    return run_on_queue(QueueTarget(redis_url, name), "queue", show, on_interrupt=0)
