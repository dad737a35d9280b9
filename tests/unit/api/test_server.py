"""How a gateway is put together."""

from __future__ import annotations

from typing import Any, cast

import pytest

from api.app import FastPathApp
from api.http.request_log import AccessLogApp
from api.server import build_app
from api.settings import GatewaySettings
from api.state import State
from shared.usage_counts import UsageCounts


@pytest.mark.parametrize(("access_log", "kind"), [(False, FastPathApp), (True, AccessLogApp)])
def test_the_access_log_costs_nothing_unless_set(access_log: bool, kind: type[object]) -> None:
    """Without it, no request passes its code."""
    state = State(GatewaySettings(access_log=access_log), cast("Any", None), UsageCounts(), cast("Any", None))
    assert type(build_app(state)) is kind
