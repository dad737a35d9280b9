"""What a process logs of the Redis that it was given, or was not, and which has not answered since its start."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import structlog

from shared.process.backoff import Backoff
from shared.process.settings import option_of

log = structlog.get_logger()

FIRST_ADVICE_S, MAX_PAUSE_S = 5.0, 60.0
ADVICE_FOR_DEFAULT = "if none runs there, start `redbatch up`, and then this process again, or give --redis-url"
ADVICE = f"start the Redis, or correct {option_of('redis_url')}"


def warn_of_default_redis(names: AbstractSet[str]) -> None:
    """Logs that the Redis is the default one, unless `names`, of the settings that were given, has a URL."""
    if is_default_redis(names):
        log.warning(
            "no --redis-url, and no running `redbatch up` to join: the Redis is the default", advice=ADVICE_FOR_DEFAULT
        )


def is_default_redis(names: AbstractSet[str]) -> bool:
    """Returns whether none of the settings that were given names a Redis."""
    return not names & {"redis_url", "redis_shards"}


async def advise_until_redis_answers(missing: Callable[[], Sequence[str]], names: AbstractSet[str]) -> None:
    """Logs what to do, ever more rarely, until Redis has answered for the first time.

    A process retries for as long as it lives, and the advice at its start scrolls away.

    Args:
        missing: returns what keeps the process from serving; "redis" is one.
        names: of the settings that were given.
    """
    pauses, started = Backoff(FIRST_ADVICE_S, MAX_PAUSE_S), time.monotonic()
    advice = ADVICE_FOR_DEFAULT if is_default_redis(names) else ADVICE
    while True:
        await pauses.wait()
        if "redis" not in missing():
            return
        waited_s = round(time.monotonic() - started)
        log.warning("Redis has not answered since the start", waited_s=waited_s, advice=advice)
