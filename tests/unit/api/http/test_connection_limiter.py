"""Which connections a gateway closes: those of a client, and not those of a proxy beside it."""

from __future__ import annotations

import ipaddress

import pytest

from api.http.connection_limiter import ConnectionLimiter
from api.settings_groups import ConnectionLimits
from tests.unit.api.http.connection_under_test import RecordingTransport

LIMITS = ConnectionLimits(max_connections=10, max_per_address=1, max_heads_bytes=20_000, head_timeout_s=10.0)
PROXY = "fd00::1"


@pytest.mark.parametrize("hosts", [[PROXY, PROXY, "fd00::2"], ["fd00::2", PROXY, PROXY]])
async def test_a_proxy_shares_no_maximum_with_its_network(hosts: list[str]) -> None:
    """A trusted proxy has all connections, and clients in its /64 their share, whichever comes first."""
    limiter = ConnectionLimiter(LIMITS, [str(ipaddress.ip_network(PROXY))])
    transports = [RecordingTransport() for _ in hosts]
    places = [limiter.admit(each, host) for each, host in zip(transports, hosts, strict=True)]
    assert [each.calls for each in transports] == [[], [], []]
    newer = limiter.admit(RecordingTransport(), "fd00::3")
    assert [each.calls for each in transports] == [["aborted"] if host != PROXY else [] for host in hosts]
    for place in (*places, newer):
        limiter.remove(place)
