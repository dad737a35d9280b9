"""To which names a gateway without API keys answers, where a page of another site could lead a browser to it."""

from __future__ import annotations

from typing import Any

import pytest

from api.http.auth import is_for_this_machine
from api.http.host_header import check_own_name
from api.settings import GatewaySettings
from shared.errors import ForbiddenError


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "[::1]:8080", "10.0.0.1", "localhost", "LOCALHOST:8080", ""])
def test_what_no_other_site_can_choose_is_taken(host: str) -> None:
    """Addresses, the name that every browser takes for this machine, and requests that no browser sends."""
    check_own_name(host)


@pytest.mark.parametrize(
    "host",
    [
        *("example.com", "example.com:8080", "localhost.example.com", "127.0.0.1.example.com", "a.localhost"),
        *("a@127.0.0.1", "127.0.0.1/a", "[::1", ":80"),
    ],
)
def test_other_names_are_refused(host: str) -> None:
    """With what to do."""
    with pytest.raises(ForbiddenError, match="--trusted-proxies"):
        check_own_name(host)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"host": "localhost"}, True),
        ({"host": "0.0.0.0"}, False),  # noqa: S104 - nothing listens
        ({"auth": "on"}, False),
        ({"auth": "off"}, False),
        ({"trusted_proxies": "127.0.0.1"}, False),
    ],
)
def test_only_a_gateway_that_this_machine_alone_reaches_refuses_names(settings: dict[str, Any], expected: bool) -> None:
    """Not one with keys, one behind a proxy, or one that is to admit all."""
    assert is_for_this_machine(GatewaySettings(**settings)) is expected
