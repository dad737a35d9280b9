"""What a worker may take, by whether its answers reach Redis."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from gpuworker.consumer.claimer import UNCOMMITTED_CLAIMS_S, Claimer

WINDOW = 8


@pytest.mark.parametrize(
    ("uncommitted_s", "capacity"),
    [(None, 2 * WINDOW), (UNCOMMITTED_CLAIMS_S / 2, 2 * WINDOW), (UNCOMMITTED_CLAIMS_S + 0.1, 0)],
)
def test_entries_are_taken_for_a_while_without_an_answer_that_reaches_redis(
    uncommitted_s: float | None, capacity: int
) -> None:
    """As in a planned failover. Later, what is taken would be kept from workers that can answer it."""
    state: Any = SimpleNamespace(
        stopping=False,
        standby=False,
        circuit=SimpleNamespace(max_entries=lambda _now, _held: None),
        in_flight=SimpleNamespace(capacity_freed=[None], num_held=lambda _number: 0),
        settings=SimpleNamespace(model="null", effective_claim_window=WINDOW),
    )
    since = None if uncommitted_s is None else time.monotonic() - uncommitted_s
    shard: Any = SimpleNamespace(worker_state=state, number=0, uncommitted_since=since)
    unused: Any = None
    engine: Any = SimpleNamespace(ready=True)
    assert Claimer(shard, unused, unused, engine, unused, unused).reclaim_capacity() == capacity
