"""The log of actions at the console."""

from __future__ import annotations

import logging

import pytest
import structlog
from fastapi import Request
from structlog.testing import capture_logs

from api.console.admin_action import ActionRecord


@pytest.mark.parametrize("level", [logging.INFO, logging.CRITICAL])
def test_an_action_is_in_the_log_at_any_level(level: int) -> None:
    """Also if the log tells of errors only."""
    config, request = structlog.get_config(), Request({"type": "http", "headers": [], "client": ("10.0.0.7", 1)})
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
    try:
        with capture_logs() as lines:
            ActionRecord("purge", "minilm", "1-0", "deleted").write(request, "k", is_refused=False)
    finally:
        structlog.configure(**config)
    expected = {"action": "purge", "queue": "minilm", "target": "1-0", "outcome": "deleted"}
    assert lines == [expected | {"event": "admin action", "log_level": "info", "key_id": "k", "client": "10.0.0.7"}]
