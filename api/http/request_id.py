"""The id of a request, in its answer and in the logs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

ID_BYTES = 16
DRAWN_IDS = 64

_unused: list[str] = []
_REQUEST_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


def request_id_of(headers: Mapping[str, str], default: str = "") -> str:
    """Returns the client's X-Request-Id if it is well formed, else `default` or a new id. It is only for logs."""
    request_id = headers.get("x-request-id", "")
    return request_id if _REQUEST_ID.match(request_id) else default or new_request_id()


def new_request_id() -> str:
    """Returns an id that is impossible to guess."""
    global _unused  # noqa: PLW0603 - one system call draws many: it takes longer than the rest of an id
    if not _unused:
        drawn = secrets.token_hex(DRAWN_IDS * ID_BYTES)
        _unused = [drawn[start : start + 2 * ID_BYTES] for start in range(0, len(drawn), 2 * ID_BYTES)]
    return _unused.pop()
