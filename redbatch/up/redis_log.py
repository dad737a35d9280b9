"""Log lines of a Redis server in the form of the other processes: a JSON record each. Pure."""

from __future__ import annotations

import json
import re

LINE = re.compile(r"\d+:(?:[XCSM] \d+ \w+ \d+ [\d:.]+ ([#*.-])|signal-handler \(\d+\)) (.*)")
"""`7:M 01 Jan 2026 12:00:00.000 # message`, and what a signal handler writes."""

LEVELS = {"#": "warning", "*": "info", "-": "debug", ".": "debug", None: "info"}
START_AND_STOP = re.compile(
    r"(oO0|(Redis|Valkey) (version=|is now ready to exit)|Configuration loaded|Server initialized|User requested "
    r"shutdown|Received SIG(TERM|INT) scheduling shutdown)"
)
"""What a server writes, as warnings, each time it starts and stops."""


def redis_record(line: str, now: str, address: str) -> str | None:
    """Returns a line of the server at an address as a JSON log record, or None if no user needs it.

    The record has the time `now` (ISO, UTC).

    A line of another form belongs to a report of an error, such as a wrong option or a crash.
    """
    found = LINE.fullmatch(line)
    level, message = ("error", line) if found is None else (LEVELS[found[1]], found[2])
    if not message.strip() or START_AND_STOP.match(message):
        return None
    record = {"ts": now, "level": level, "msg": message, "service": "redis", "redis": address}
    return json.dumps(record, ensure_ascii=False)
