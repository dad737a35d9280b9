"""A process that was given no Redis says that it uses the default one."""

from __future__ import annotations

from structlog.testing import capture_logs

from shared.process.logs import warn_of_default_redis


def test_the_default_redis_is_a_warning_only_if_none_was_given() -> None:
    """Otherwise a worker without a cluster would report an unreachable Redis that its user never named."""
    with capture_logs() as lines:
        warn_of_default_redis({"redis_url", "model"})
        warn_of_default_redis({"redis_shards", "model"})
        warn_of_default_redis({"model"})
    assert [(line["log_level"], "--redis-url" in line["event"]) for line in lines] == [("warning", True)]
