"""Implementation of `redbatch queue`."""

from __future__ import annotations

from functools import partial

from redbatch.queue import view
from redbatch.queue.view import QueueView
from redbatch.queue_target import QueueTarget, run_on_queue
from redbatch.state_printer import print_states, state_printer
from redbatch.terminal import make_console
from shared.connection import RedisConnection
from shared.keys import Keys
from shared.producer import last_heartbeats, list_queues, queue_stats


def show_queues(target: QueueTarget, *, in_json: bool, watch: bool) -> int:
    """Prints all queues, or the one that is named, once or every second until Ctrl-C.

    Returns the exit code: 1 if they cannot be read, or if there is no such queue.
    """

    async def show(connection: RedisConnection, keys: Keys) -> int:
        # An `up` has a queue from the start; otherwise `keys` are only those of the default.
        known = [keys.queue] if target.queue is not None or not target.names_redis else []
        read = partial(read_queues, connection, known, only_known=target.queue is not None)
        with state_printer(make_console(), view.as_text, view.as_json, in_json=in_json) as show_views:
            await print_states(read, show_views, watch=watch)
        return 0

    return run_on_queue(target, "queue", show, on_interrupt=0)


async def read_queues(connection: RedisConnection, known: list[str], *, only_known: bool) -> list[QueueView]:
    """Returns the queues that are known and, unless `only_known`, those that workers announced, by name."""
    announced = [] if only_known else await list_queues(connection)
    names = sorted({*known, *announced})
    return [
        QueueView(name, await queue_stats(connection, Keys(name)), await last_heartbeats(connection, Keys(name)))
        for name in names
    ]
