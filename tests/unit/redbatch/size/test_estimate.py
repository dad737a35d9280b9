"""The deployment for a rate of requests."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbatch.size.estimate import (
    BYTES_PER_JSON_NUMBER,
    GATEWAY,
    REDIS,
    WORKER,
    Deployment,
    Requirements,
    WorkerSpeed,
    estimate,
    speed_of,
)
from redbatch.size.figures import Measured, MeasuredModel, ModelSpeed, Source

MODEL = MeasuredModel(2, [ModelSpeed(10, 500), ModelSpeed(50, 100)])
CPU_US = {"gateway": 100.0, "worker": 40.0, "engine": 25.0, "redis": 50.0}
MEASURED = Measured(Source("c1", "D", "M", "make bench", "T"), 15, 384, CPU_US, 2_400, 2_200, {"minilm": MODEL})
NEEDED = Requirements(1_000, 1, 15, 384, 0.2)
FAST = WorkerSpeed(math.inf, 1)


def size(speed: WorkerSpeed = FAST, **changes: Any) -> Deployment:  # noqa: ANN401 - of different types
    """Returns the deployment for NEEDED with changes."""
    return estimate(replace(NEEDED, **changes), speed, MEASURED)


def processes(deployment: Deployment) -> list[int]:
    """Returns the number of processes of each role."""
    return [deployment.parts[role].processes for role in (GATEWAY, WORKER, REDIS)]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(1e-6, [1, 1, 1]), (8_000, [1, 1, 1]), (8_001, [2, 1, 1]), (16_001, [3, 1, 2]), (100_000, [13, 5, 7])],
)
def test_processes_are_full_at_one_core_less_the_headroom(rate: float, expected: list[int]) -> None:
    """A gateway of 100 µs takes 10,000 requests per second, and 8,000 with 20 % headroom. None has fewer than one."""
    assert processes(size(rate=rate)) == expected


def test_the_processes_of_a_rate_use_its_cores() -> None:
    """The worker and its engine count together; Redis and gateways reserve a core each."""
    parts = size(rate=16_001).parts
    assert [parts[role].busy_cores for role in (GATEWAY, WORKER, REDIS)] == pytest.approx(
        [1.6001, 16_001 * 65e-6, 16_001 * 50e-6]
    )
    assert [parts[role].cores for role in (GATEWAY, WORKER, REDIS)] == [3, 1, 2]


@given(
    rates=st.tuples(st.floats(0.001, 1e6), st.floats(0.001, 1e6)),
    inputs=st.integers(1, 100),
    vectors_per_s=st.floats(1, 1e6),
    headroom=st.floats(0, 0.9),
)
def test_more_requests_never_need_less(
    rates: tuple[float, float], inputs: int, vectors_per_s: float, headroom: float
) -> None:
    """Every number grows with the rate or stays, a limit that was reached stays reached, and one process is least."""
    low, high = (
        size(WorkerSpeed(vectors_per_s, 2), rate=rate, inputs_per_request=inputs, headroom=headroom)
        for rate in sorted(rates)
    )
    assert all(1 <= less <= more for less, more in zip(processes(low), processes(high), strict=True))
    assert set(low.reached) <= set(high.reached)
    for role, part in low.parts.items():
        assert part.busy_cores <= high.parts[role].busy_cores
    for less, more in zip(low.links, high.links, strict=True):
        assert (less.there_bytes_per_s, less.back_bytes_per_s) <= (more.there_bytes_per_s, more.back_bytes_per_s)


@given(rate=st.floats(1, 1e6), vectors_per_s=st.floats(1, 1e6), headroom=st.floats(0, 0.9))
def test_no_process_is_fuller_than_the_headroom_allows(rate: float, vectors_per_s: float, headroom: float) -> None:
    """The load of each process stays below the rate at which it is full, less the headroom."""
    deployment = size(WorkerSpeed(vectors_per_s, 2), rate=rate, headroom=headroom)
    for part in deployment.parts.values():
        assert rate / part.processes <= part.full_at_requests_per_s * (1 - headroom) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("rate", "vectors_per_s", "reached"),
    [
        (8_000, 1_000, set()),
        (8_001, 1_000, {GATEWAY}),
        (16_001, 1_000, {GATEWAY, REDIS}),
        (20_001, 1_000, {GATEWAY, REDIS}),
        (20_001, 30_000, {GATEWAY, REDIS, WORKER}),
    ],
)
def test_reached_limits_are_named(rate: float, vectors_per_s: float, reached: set[str]) -> None:
    """That of the worker process counts only where the model is faster, so that the process sets the number."""
    assert set(size(WorkerSpeed(vectors_per_s, None), rate=rate).reached) == reached


def test_a_worker_is_full_with_its_model_or_its_process() -> None:
    """Whichever takes fewer requests; with several inputs per request, fewer requests."""
    assert size(WorkerSpeed(200, 2)).parts[WORKER].full_at_requests_per_s == 200
    assert size(WorkerSpeed(200, 2), inputs_per_request=4).parts[WORKER].full_at_requests_per_s == 50
    assert size(WorkerSpeed(1e9, 2)).parts[WORKER].full_at_requests_per_s == 25_000
    assert size(WorkerSpeed(200, 2)).worker_process_full_at_requests_per_s == 25_000


def test_unknown_cores_of_a_worker_stay_unknown() -> None:
    """They are not counted as none."""
    parts = size(WorkerSpeed(200, None)).parts
    assert (parts[WORKER].cores, parts[WORKER].processes) == (None, 7)


@pytest.mark.parametrize(
    ("tokens", "vectors_per_s"), [(1, 500), (10, 500), (30, 1 / 0.006), (50, 100), (90, 1 / 0.018)]
)
def test_the_time_of_a_vector_grows_linearly_with_its_text(tokens: float, vectors_per_s: float) -> None:
    """Through both measured lengths and beyond; a shorter text is not assumed to be faster."""
    speed = speed_of(MODEL, tokens)
    assert speed.vectors_per_s == pytest.approx(vectors_per_s)
    assert speed.cores == 2


@pytest.mark.parametrize(
    ("changes", "there", "back"),
    [
        ({"dim": 385}, [0, 0, 4], [BYTES_PER_JSON_NUMBER, 4, 0]),
        ({"tokens_per_input": 20}, [24, 24, 0], [0, 0, 24]),
    ],
)
def test_links_carry_texts_one_way_and_vectors_the_other(
    changes: dict[str, Any], there: list[float], back: list[float]
) -> None:
    """A number more is JSON for clients and four bytes for Redis; texts go from clients to workers."""
    pairs = list(zip(size().links, size(**changes).links, strict=True))
    assert [(more.there_bytes_per_s - less.there_bytes_per_s) / 1_000 for less, more in pairs] == pytest.approx(there)
    assert [(more.back_bytes_per_s - less.back_bytes_per_s) / 1_000 for less, more in pairs] == pytest.approx(back)


def test_the_links_of_redis_carry_at_least_what_it_was_measured_to_carry() -> None:
    """For the measured text and vector; the bytes beyond them count for both sides, and none is missing."""
    _, gateways, workers = size().links
    assert gateways.there_bytes_per_s + workers.there_bytes_per_s >= 1_000 * MEASURED.redis_in_bytes
    assert gateways.back_bytes_per_s + workers.back_bytes_per_s >= 1_000 * MEASURED.redis_out_bytes
