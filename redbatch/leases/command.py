"""Implementation of `redbatch leases`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from redbatch.leases import view
from redbatch.queue_target import QueueTarget, run_on_shards
from redbatch.state_printer import print_states, state_printer
from redbatch.terminal import make_console
from shared.connection import RedisConnection
from shared.gpu_pools import PoolMember, PoolView, read_pools
from shared.keys import Keys
from shared.producer import list_queues, queue_stats
from shared.shard_connections import ShardConnection


def show_leases(target: QueueTarget, pool: str | None, *, in_json: bool, watch: bool) -> int:
    """Prints the leases of all pools or of one, once or every second until Ctrl-C.

    With shards, all leases are in the Redis of the first. Returns the exit code: 1 if they cannot be read.
    """

    async def show(shards: Sequence[ShardConnection], _: Keys) -> int:
        connection = shards[0].connection
        as_text = partial(view.as_text, name=pool)
        with state_printer(make_console(), as_text, view.as_json, in_json=in_json) as show_pools:
            await print_states(partial(_read_pools, connection, pool), show_pools, watch=watch)
        return 0

    return run_on_shards(target, "leases", show, on_interrupt=0, choose=lambda urls: urls[:1])


async def _read_pools(connection: RedisConnection, name: str | None) -> list[PoolView]:
    """Returns the pools that live workers of any queue use, by name; only one of them if it is named."""
    members = [
        PoolMember(queue, beat)
        for queue in await list_queues(connection)
        for beat in (await queue_stats(connection, connection.keys_of(queue))).workers
        if name in (None, beat.gpu_pool)
    ]
    return await read_pools(connection, members)
