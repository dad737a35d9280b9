"""Implementation of `redbatch queue`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rich.console import RenderableType

from redbatch.queue import view
from redbatch.queue_target import QueueTarget, ask_shards, run_on_shards
from redbatch.state_printer import print_states, state_printer
from redbatch.terminal import make_console
from shared.keys import Keys
from shared.producer import list_queues
from shared.queue_reader import merge_views, read_views
from shared.queue_view import QueueView
from shared.redis_url import one_per_keyspace
from shared.shard_connections import ShardConnection

AsText = Callable[[Sequence[QueueView]], RenderableType]
AsJson = Callable[[Sequence[QueueView]], str]


def show_queues(
    target: QueueTarget,
    as_text: AsText = view.as_text,
    as_json: AsJson = view.as_json,
    *,
    in_json: bool,
    watch: bool,
) -> int:
    """Prints all queues, or the one that is named, once or every second until Ctrl-C; or what others print of them.

    Returns the exit code: 1 if they cannot be read, or if there is no such queue.
    """

    async def show(shards: Sequence[ShardConnection], keys: Keys) -> int:
        # An `up` has a queue from the start; otherwise `keys` are only those of the default.
        known = [keys.queue] if target.queue is not None or not target.names_redis else []
        read = partial(read_queues, shards, known, only_known=target.queue is not None)
        with state_printer(make_console(), as_text, as_json, in_json=in_json) as show_views:
            await print_states(read, show_views, watch=watch)
        return 0

    return run_on_shards(target, "queue", show, on_interrupt=0)


async def read_queues(shards: Sequence[ShardConnection], known: list[str], *, only_known: bool) -> list[QueueView]:
    """Returns the queues that are known and, unless `only_known`, those that workers announced, by name.

    Raises RedisUnreachableError: no shard answers.
    """
    keyspaces = one_per_keyspace([each.place for each in shards], shards)
    announced, problems = ({}, {}) if only_known else await ask_shards(keyspaces, _list_queues)
    names = sorted({*known, *(name for each in announced.values() for name in each)})
    answering = [each for each in shards if each.number not in problems]
    views, more_problems = await ask_shards(answering, partial(read_views, names))
    return merge_views(names, shards, views, problems | more_problems)


async def _list_queues(shard: ShardConnection) -> list[str]:
    return await list_queues(shard.connection)
