"""Which names lead to a gateway on the loopback interface and to nothing else. Pure."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from shared.errors import ForbiddenError


def check_local_name(host: str) -> None:
    """Checks that a request was sent to an address, or to localhost.

    A page of another site can have a browser send requests to a name of that site, which then leads to 127.0.0.1 (DNS
    rebinding), and read the answers.

    Args:
        host: the header Host of the request; empty: no browser sent it.

    Raises:
        ForbiddenError: it was sent to another name.
    """
    if not host or _is_local(host):
        return
    raise ForbiddenError(
        "Without API keys this is for URLs with an address or localhost, such as http://127.0.0.1: by another name, a "
        "page of another site could read it. Behind a proxy, start the gateway with --trusted-proxies or --auth on."
    )


def _is_local(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or bool(ip_address(name))
    except ValueError:
        return False
