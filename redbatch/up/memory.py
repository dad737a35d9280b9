"""The part of the memory that the Redis of `redbatch up` may take."""

from __future__ import annotations

from shared.process.memory import memory_bytes

REDIS_PART = 4
"""Redis gets the memory divided by this. It takes twice its data to rewrite its file, and the model needs some too."""


def default_redis_bytes() -> int:
    """Returns the default of --max-redis-bytes."""
    return memory_bytes() // REDIS_PART
