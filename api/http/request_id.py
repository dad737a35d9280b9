"""The id of a request, in its answer and in the logs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

_REQUEST_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


def request_id_of(headers: Mapping[str, str], default: str = "") -> str:
    """Returns the client's X-Request-Id if it is well formed, else `default` or a new id. It is only for logs."""
    request_id = headers.get("x-request-id", "")
    return request_id if _REQUEST_ID.match(request_id) else default or secrets.token_hex(16)
