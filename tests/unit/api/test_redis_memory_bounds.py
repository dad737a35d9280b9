"""The stated maximum memory of Redis."""

from __future__ import annotations

from api.redis_memory_bounds import NUM_TENANTS, ClusterSize, max_redis_bytes, redis_memory_bounds
from api.settings import GatewaySettings
from tools.bounds import value_of

LARGE = ClusterSize(2, 2, 2**40, 200)
"""Its maxmemory is more than all bounds together."""


def test_each_bound_counts() -> None:
    """A larger bound is a larger maximum, and so is a larger cluster."""
    default = max_redis_bytes(GatewaySettings(), LARGE)
    for name in (
        "max_in_flight_bytes",
        "max_queue_inputs",
        "max_owed_bytes",
        "max_inline_bytes",
        "cache_bytes",
        "reply_connections",
        "max_result_ratio",
    ):
        value = 1.0 if name == "max_result_ratio" else int(getattr(GatewaySettings(), name)) * 2 or 1
        maximum = GatewaySettings.model_validate({name: value})
        assert max_redis_bytes(maximum, LARGE) > default, name
    for name in ("gateways", "workers", "max_memory_bytes", "max_dead_letters"):
        larger = LARGE._replace(**{name: 2 * getattr(LARGE, name)})
        assert max_redis_bytes(GatewaySettings(), larger) > default, name


def test_a_small_redis_accepts_less() -> None:
    """What `redis_memory_ratio` allows, and then the accepted requests; never more than maxmemory."""
    settings = GatewaySettings()
    total = sum(each.num_bytes for each in redis_memory_bounds(settings, LARGE._replace(max_memory_bytes=6 * 2**30)))
    maximum = max_redis_bytes(settings, LARGE._replace(max_memory_bytes=6 * 2**30))
    assert 0.7 * 6 * 2**30 < maximum < min(total, 6 * 2**30)
    assert max_redis_bytes(settings, LARGE._replace(max_memory_bytes=2**30)) == 2**30


def test_the_accounts_are_those_of_the_script() -> None:
    """The script keeps that many tenants, and one account for all others."""
    assert value_of("shared.lua.tenant_limits.MAX_TENANTS") + 1 == NUM_TENANTS
