"""Settings of a gateway behind a proxy."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from api.routes import begins_route
from api.settings import GatewaySettings


def test_networks_of_proxies() -> None:
    """Single addresses and networks; those of IPv4 also in the form in which a socket of IPv6 reports them."""
    settings = GatewaySettings(trusted_proxies="10.0.0.0/8, 192.0.2.7,fd00::/8")
    expected = ["10.0.0.0/8", "192.0.2.7/32", "fd00::/8", "::ffff:10.0.0.0/104", "::ffff:192.0.2.7/128"]
    assert settings.trusted_networks == expected
    assert GatewaySettings().trusted_networks == []


@pytest.mark.parametrize("value", ["10.0.0.1/8", "proxy.example.com", "*", "10.0.0.0/8;fd00::/8", "0.0.0.0/0", "::/0"])
def test_what_is_no_network_or_all_of_them_is_refused(value: str) -> None:
    """A typing error must not mean that no proxy is trusted; and to trust all is to trust what clients send."""
    with pytest.raises(ValidationError):
        GatewaySettings(trusted_proxies=value)


@pytest.mark.parametrize("value", ["ai", "/", "/ai/", "//ai", "/a b", "/ai?x", "https://example.com/ai"])
def test_a_prefix_is_a_path(value: str) -> None:
    """It begins with a slash, and ends without one."""
    with pytest.raises(ValidationError):
        GatewaySettings(root_path=value)


def test_a_prefix_with_which_routes_begin_is_ambiguous() -> None:
    """Whether a proxy has removed it could not be known."""
    assert [
        each for each in ("/v1", "/jobs", "/embed", "/docs", "/job", "/v", "/ai/jobs", "") if begins_route(each)
    ] == [
        "/v1",
        "/jobs",
        "/embed",
        "/docs",
    ]
