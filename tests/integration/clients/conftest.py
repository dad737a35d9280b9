"""A gateway with a null worker behind it, and processes of a test's own, as the tests of a gateway have them."""

from __future__ import annotations

import pytest

from tests.integration.gateway.conftest import cluster, fake_heartbeat, served

__all__ = ["cluster", "fake_heartbeat", "served"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the frameworks, whose environment takes minutes, to those who ask for them with `-m frameworks`."""
    if "frameworks" in config.getoption("markexpr"):
        return
    left = [item for item in items if item.get_closest_marker("frameworks") is not None]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
