"""The fixtures of the gateway tests, and the selection of the tests with frameworks."""

from __future__ import annotations

import pytest

from tests.integration.gateway.conftest import cluster, fake_heartbeat, served

__all__ = ["cluster", "fake_heartbeat", "served"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests with frameworks unless `-m frameworks` selects them: their environment takes minutes."""
    if "frameworks" in config.getoption("markexpr"):
        return
    deselected = [item for item in items if item.get_closest_marker("frameworks") is not None]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]
