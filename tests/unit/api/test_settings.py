"""Settings of a gateway behind a proxy."""

from __future__ import annotations

from typing import cast

import pytest
from pydantic import ValidationError

from api.app import description, make_app
from api.pages.routes import PAGE_PATHS
from api.routes import begins_route
from api.server import run
from api.settings import GatewaySettings
from api.state import State
from shared.process.settings import EXIT_CONFIGURATION


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


AMBIGUOUS = [
    "/v1",
    "/jobs",
    "/embed",
    "/docs",
    "/docs/static",
    "/v1/models/x",
    "/v1/models/x/y",
    "/jobs/x",
    "/jobs/x/result",
]
CLEAR = ["", "/job", "/v", "/ai/jobs", "/jobs/x/other", "/embed/x", "/v1/ai", "/docs/x"]


def test_a_prefix_with_which_routes_begin_is_ambiguous(capsys: pytest.CaptureFixture[str]) -> None:
    """Whether a proxy has removed it could not be known: the gateway ends with a line like that for other settings."""
    assert [each for each in (*AMBIGUOUS, *CLEAR) if begins_route(each)] == AMBIGUOUS
    assert run(GatewaySettings(root_path="/v1/models/x")) == EXIT_CONFIGURATION
    assert capsys.readouterr().err.startswith("redbatch: --root-path (REDBATCH_ROOT_PATH): routes of the gateway")


def test_every_path_of_the_application_is_known() -> None:
    """Those that FastAPI adds included; every path begins with the prefix "/", so that one is none."""
    app = make_app(cast("State", None))
    added = {app.docs_url, app.redoc_url, app.openapi_url, *PAGE_PATHS}
    paths = {path for path in (*description()["paths"], *added) if path} - {"/"}
    assert {path for path in paths if not begins_route(path)} == set()
