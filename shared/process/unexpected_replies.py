"""Error replies of Redis that no part of a process can do anything about: logged and counted here, and nowhere else."""

from __future__ import annotations

import logging

from prometheus_client import Counter

from shared.process.limited_log import LimitedLog
from shared.process.log_text import printable_line

limited_log = LimitedLog()

UNEXPECTED_REPLIES = Counter(
    "redbatch_unexpected_redis_replies", "Error replies of Redis that no part of this process expects, such as of a bug"
)


def record_unexpected_reply(connection: str, reply: str) -> None:
    """Logs and counts an error reply. The call that got it counts Redis as out of reach."""
    UNEXPECTED_REPLIES.inc()
    limited_log.write(
        logging.ERROR, "Redis answers with an unexpected error", connection=connection, reply=printable_line(reply)
    )
