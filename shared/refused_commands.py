"""Commands that some services refuse and Redbatch can do without: one warning for each, which says what is lost."""

from __future__ import annotations

import structlog

from shared.redis_errors import UnexpectedReplyError

log = structlog.get_logger()

LATE_REPLY = "if a connection breaks, Redis may still send a reply to it: that request waits for its deadline"
LATE_END = "a worker that stops or looks for lost entries waits up to 2 s for its read to end"

LOSSES = {
    "CLIENT INFO": f"{LATE_REPLY}; {LATE_END}",
    "CLIENT KILL": LATE_REPLY,
    "CLIENT UNBLOCK": LATE_END,
}
"""What is lost without a command."""


class RefusedCommands:
    """Warns of them.

    Args:
        queue: its name, for logs.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._warned: set[str] = set()

    def warn(self, command: str, error: UnexpectedReplyError) -> None:
        """Logs, once for each command, that Redis refuses it."""
        if command not in self._warned:
            self._warned.add(command)
            log.warning(
                "Redis refuses a command",
                queue=self._queue,
                command=command,
                lost=LOSSES[command],
                reason=error.log_message,
            )
