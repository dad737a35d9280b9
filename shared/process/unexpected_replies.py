"""Error replies of Redis that no part of a process can do anything about: logged and counted here, and nowhere else.

The connection records those that no caller expects, which it knows by their class. Of the others, such as a
missing permission, some callers know what to do; a caller that does not records that its call fails.
"""

from __future__ import annotations

import logging

from prometheus_client import Counter

from shared.errors import RedisUnreachableError
from shared.process.limited_log import LimitedLog
from shared.process.log_text import printable_line
from shared.redis_errors import UnexpectedReplyError

limited_log = LimitedLog()

UNEXPECTED_REPLIES = Counter(
    "redbatch_unexpected_redis_replies",
    "Error replies of Redis that this process can do nothing about, as of a bug",
)


def record_unexpected_reply(connection: str, reply: str) -> None:
    """Logs and counts an error reply. The call that got it counts Redis as out of reach."""
    UNEXPECTED_REPLIES.inc()
    limited_log.write(
        logging.ERROR, "Redis answers with an unexpected error", connection=connection, reply=printable_line(reply)
    )


def record_failing_call(event: str, error: RedisUnreachableError) -> None:
    """Logs and counts an error reply on which a call may fail for ever, unless the connection has done so.

    An error without a reply is an outage, which the monitor or the heartbeat reports.
    """
    if isinstance(error, UnexpectedReplyError) and type(error) is not UnexpectedReplyError:
        UNEXPECTED_REPLIES.inc()
        limited_log.write(logging.ERROR, event, reason=error.log_message)
