"""The ids of a request: that of its answer and of the logs, and that of its keys in Redis."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

_ID_BYTES, _NUM_DRAWN = 16, 64
_unused: list[str] = []
_REQUEST_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


def request_id_of(headers: Mapping[str, str], default: str = "") -> str:
    """Returns the client's X-Request-Id if it is well formed, else `default` or a new id. It is only for logs."""
    request_id = headers.get("x-request-id", "")
    return request_id if request_id and _REQUEST_ID.match(request_id) else default or new_request_id()


def new_request_id() -> str:
    """Returns an id that is impossible to guess.

    One system call draws many, as it takes longer than the rest. So a process that has drawn one must not fork.
    """
    if not _unused:
        drawn = secrets.token_hex(_NUM_DRAWN * _ID_BYTES)
        _unused.extend(drawn[start : start + 2 * _ID_BYTES] for start in range(0, len(drawn), 2 * _ID_BYTES))
    return _unused.pop()
