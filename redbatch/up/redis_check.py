"""Checks the Redis that a cluster is to use, before its processes start."""

from __future__ import annotations

from shared.errors import RedisUnreachableError
from shared.producer import queue_stats
from shared.queue_connections import QueueConnections
from shared.redis_errors import KeyMovedError
from shared.redis_url import mask_password
from shared.settings import QueueSettings


class RedisRefusedError(RuntimeError):
    """Redis refuses the user, its password or the database: no process of the cluster could do anything."""


async def check_redis(settings: QueueSettings, queue: str) -> str:
    """Reads the state of a queue, as gateways will; returns why Redis cannot serve now, "" if it can.

    Raises:
        RedisRefusedError: it never will with these settings.
    """
    connections = QueueConnections(settings, queue, "redbatch-up")
    where = mask_password(settings.redis_url)
    try:
        await queue_stats(connections.connection("check"), connections.keys)
    except RedisUnreachableError as error:
        if error.is_refused or (isinstance(error, KeyMovedError) and error.is_elsewhere):
            raise RedisRefusedError(f"{where}: {error.log_message}") from None
        return error.log_message
    finally:
        await connections.close()
    return ""
