"""The header Host of a request: its parts, and whether a page of another site can have chosen it. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address

from shared.errors import ForbiddenError

HOST_HEADER = re.compile(r"(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?")
"""Host and port."""


def check_own_name(host: str) -> None:
    """Checks that a request was sent to an address, or to localhost.

    A page of another site can have a browser send requests to a name of that site, which then leads to 127.0.0.1 (DNS
    rebinding), and read the answers.

    Args:
        host: the header; empty: no browser sent the request.

    Raises:
        ForbiddenError: it was sent to another name.
    """
    if not host or _is_address_or_localhost(host):
        return
    raise ForbiddenError(
        "Without API keys this is for URLs with an address or localhost, such as http://127.0.0.1: by another name, a "
        "page of another site could read it. Behind a proxy, start the gateway with --trusted-proxies or --auth on."
    )


def _is_address_or_localhost(host: str) -> bool:
    parts = HOST_HEADER.fullmatch(host)
    name = "" if parts is None else parts[1]
    if name.lower() == "localhost":
        return True
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
