"""Whose connections count together: those of a client, and those of a proxy, behind which there are many clients."""

from __future__ import annotations

import asyncio

from api.http.connection_limiter import ConnectionLimiter
from api.settings import GatewaySettings
from tests.unit.api.http.connection_under_test import RecordingTransport

SETTINGS = GatewaySettings(trusted_proxies="2001:db8::1,10.0.0.1", max_address_ratio=0.25)
MAX_CONNECTIONS, MAX_PER_ADDRESS = 16, 4
PROXY, NEIGHBOUR = "2001:db8::1", "2001:db8::2"


def num_open(*hosts: str) -> list[int]:
    """Returns how many connections of each address are open after they were opened in this order."""

    async def connect() -> list[int]:
        limiter = ConnectionLimiter(SETTINGS.connection_limits(MAX_CONNECTIONS), SETTINGS.trusted_networks)
        transports = [(host, RecordingTransport()) for host in hosts]
        for host, transport in transports:
            limiter.admit(transport, host, lambda: None)
        opened = [host for host, transport in transports if "aborted" not in transport.calls]
        return [opened.count(host) for host in dict.fromkeys(hosts)]

    return asyncio.run(connect())


def test_a_proxy_has_no_share() -> None:
    """A proxy may have all connections, in IPv4 too where the socket is of IPv6; another address has its share."""
    for proxy in (PROXY, "10.0.0.1", "::ffff:10.0.0.1"):
        assert num_open(*[proxy] * MAX_CONNECTIONS) == [MAX_CONNECTIONS]
    assert num_open(*["10.0.0.2"] * MAX_CONNECTIONS) == [MAX_PER_ADDRESS]


def test_a_proxy_shares_nothing_with_its_network() -> None:
    """Other addresses of the proxy's /64 network take nothing of its connections, and have their share, not all."""
    assert num_open(NEIGHBOUR, *[PROXY] * 10) == [1, 10]
    assert num_open(PROXY, *[NEIGHBOUR] * 10) == [1, MAX_PER_ADDRESS]
    assert num_open(*["2001:db8::3"] * 2, *[NEIGHBOUR] * 10) == [0, MAX_PER_ADDRESS], "they are one client"
