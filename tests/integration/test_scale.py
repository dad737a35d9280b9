"""The cost of a request by scale, and the bytes that `redbatch size` expects, on real clusters with a short load."""

from __future__ import annotations

import pytest

from bench import redbatch_bench
from bench.cluster import ROLES, Shape, cluster
from bench.cost import snapshot
from bench.scale import Extent, measure
from redbatch.size.command import compute
from redbatch.size.estimate import Requirements

pytestmark = pytest.mark.slow
REQUESTS = 300


def test_a_size_is_measured_under_an_open_loop() -> None:
    """Every role uses CPU, no request fails, and the requests that are counted in Redis are those of the rate."""
    row = measure(2, 100, Extent((2,), 1, idle_s=0.5, window_s=2.0), seed=1)
    assert row.of == {"size": 2, "rate": "100"}
    assert row.figures["errors"] == 0
    assert all(row.figures[f"cpu_us.{role}"] > 0 for role in ROLES)
    assert row.figures["sum_us"] == pytest.approx(sum(row.figures[f"cpu_us.{role}"] for role in ROLES))
    assert row.figures["requests_per_s"] == pytest.approx(100, rel=0.4)  # random arrivals: the spread is 7 %
    assert 0 < row.figures["p50_ms"] <= row.figures["p99_ms"]


def test_links_carry_about_the_bytes_that_are_computed() -> None:
    """Between clients and gateways, and in all at Redis, whose heartbeats count in this short load."""
    with cluster(Shape("null")) as running:
        before = snapshot(running)
        load = ("--rate", "100", "--requests", str(REQUESTS), "--warmup", "0s")
        measured = redbatch_bench.run(running.url, *load)["measured"]
        after = snapshot(running)
    clients, gateways, workers = compute(Requirements(REQUESTS, 1, 15, 384, 0.3), "null", None).deployment.links
    assert clients.there_bytes_per_s == pytest.approx(measured["sent_bytes"], rel=0.2)
    assert clients.back_bytes_per_s == pytest.approx(measured["received_bytes"], rel=0.3)  # `null` has short numbers
    received, sent = (after.redis_in_bytes - before.redis_in_bytes, after.redis_out_bytes - before.redis_out_bytes)
    assert gateways.there_bytes_per_s + workers.there_bytes_per_s == pytest.approx(received, rel=0.3)
    assert gateways.back_bytes_per_s + workers.back_bytes_per_s == pytest.approx(sent, rel=0.5)
