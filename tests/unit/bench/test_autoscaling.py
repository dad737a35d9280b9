"""The rules of the autoscalers, and the day under them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import results
from bench.autoscaling import day, gateways, manifests, scenes
from bench.autoscaling.fleet import Fleet, Worker, percentile
from bench.autoscaling.hpa import SYNC_S, Autoscaler, Behaviour, Policy, Rules, by_average, by_utilization
from bench.autoscaling.keda import ScaledObject, Scaler

QUICK = Rules(0, [Policy("Percent", 100, 15), Policy("Pods", 4, 15)])
DEFAULT = Behaviour(1, 50, QUICK, Rules(300, [Policy("Percent", 100, 15)]))
"""What Kubernetes does where a manifest says nothing."""


@pytest.mark.parametrize(
    ("total", "target", "replicas", "asked"),
    [(200, 100, 1, 2), (50, 100, 2, 1), (0, 100, 3, 0), (109, 100, 1, 1), (111, 100, 1, 2), (310, 100, 3, 3)],
)
def test_an_average_asks_for_its_share(total: float, target: float, replicas: int, asked: int) -> None:
    """As many as have the target each, rounded up; within a tenth of it nothing changes."""
    assert by_average(total, target, replicas) == asked


@pytest.mark.parametrize(
    ("used", "unready", "asked"),
    [([1.0], 0, 2), ([0.25, 0.25], 0, 1), ([0.52, 0.5], 0, 2), ([1.0, 1.0], 2, 4), ([1.0, 1.0], 1, 4), ([], 2, 2)],
)
def test_utilization_counts_who_is_not_ready_as_idle(used: list[float], unready: int, asked: int) -> None:
    """With a target of one half. More are asked for only if those that come will not do."""
    assert by_utilization(used, unready, 0.5) == asked


def test_no_more_come_than_policies_allow() -> None:
    """The most of "twice as many" and "four more", in each period."""
    autoscaler, current, found = Autoscaler(DEFAULT), 1, []
    for step in range(5):
        current = autoscaler.replicas(step * SYNC_S, current, 40)
        found.append(current)
    assert found == [5, 10, 20, 40, 40]


def test_none_go_before_the_window_has_passed() -> None:
    """What was asked for at most in the last five minutes stays; then all go at once, as the policy allows."""
    autoscaler, at = Autoscaler(DEFAULT), 0.0
    assert autoscaler.replicas(at, 6, 6) == 6
    while at < 300 - SYNC_S:
        at += SYNC_S
        assert autoscaler.replicas(at, 6, 1) == 6
    assert autoscaler.replicas(at + SYNC_S, 6, 1) == 1


def test_they_go_one_by_one_where_the_policy_says_so() -> None:
    """One pod in two minutes."""
    slow = replace(DEFAULT, down=Rules(0, [Policy("Pods", 1, 120)]))
    autoscaler, current, left = Autoscaler(slow), 4, []
    for step in range(25):
        before = current
        current = autoscaler.replicas(step * SYNC_S, current, 1)
        left += [step * SYNC_S] if current < before else []
    assert left == [0, 120, 240]


policies = st.lists(
    st.builds(Policy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 200), st.sampled_from([15.0, 60.0, 120.0])),
    min_size=1,
    max_size=3,
)
rules = st.builds(Rules, st.sampled_from([0.0, 60.0, 600.0]), policies)


@given(
    st.builds(Behaviour, st.integers(1, 3), st.integers(4, 30), rules, rules), st.lists(st.integers(0, 60), min_size=2)
)
def test_it_stays_within_its_bounds_and_policies(behaviour: Behaviour, asked: list[int]) -> None:
    """However it is asked: not below the least, not above the most, no further at once than a policy."""
    autoscaler, found = Autoscaler(behaviour), [behaviour.least]
    for step, each in enumerate(asked):
        found.append(autoscaler.replicas(step * SYNC_S, found[-1], each))
    assert all(behaviour.least <= each <= behaviour.most for each in found)
    for before, after in pairwise(found):
        steps = [p.value if p.kind == "Pods" else before * p.value / 100 + 1 for p in behaviour.up.policies]
        assert after - before <= max(steps)


def scaled(least: int = 0) -> ScaledObject:
    """A ScaledObject with a target of ten entries."""
    return ScaledObject(10, least, 30, 300, DEFAULT)


def test_the_first_entry_brings_a_worker_and_the_last_takes_it_away() -> None:
    """At KEDA's next look, and when nothing came for the cooldown; where one is to stay it stays."""
    scaler = Scaler(scaled())
    assert scaler.replicas(0, 0, 0) == 0
    assert scaler.replicas(15, 0, 1) == 0, "it has not looked"
    assert scaler.replicas(30, 0, 1) == 1
    assert [scaler.replicas(30 + at, 1, 0) for at in (30, 270, 300)] == [1, 1, 0]
    stays = Scaler(scaled(least=1))
    assert {stays.replicas(at, 1, 0) for at in range(0, 3_000, 30)} == {1}


WORKER = Worker(0.005, 0.002, start_s=30)


@pytest.mark.parametrize("per_s", [50.0, 400.0, 2_000.0])
def test_every_request_is_accounted_for(per_s: float) -> None:
    """Served, refused, expired or waiting; and the same seed gives the same day."""
    outcomes = [Fleet(WORKER, Scaler(scaled(1)).replicas, seed=7).run(lambda _: per_s, 600) for _ in range(2)]
    first = outcomes[0]
    assert first.arrived == first.served + first.refused + first.expired + first.waiting
    assert 0.9 * per_s * 600 < first.arrived < 1.1 * per_s * 600
    assert first == outcomes[1]


def test_a_fleet_that_keeps_up_needs_a_batch_and_one_that_does_not_a_queue() -> None:
    """One worker, at a tenth and at twice of what it can do: then others are refused, since they would be too late."""

    def one(per_s: float) -> tuple[float, int]:
        found = Fleet(WORKER, lambda _now, current, _entries: current).run(lambda _: per_s, 300)
        return found.percentile(0.99), found.refused

    assert one(WORKER.per_s / 10) == (2 * WORKER.batch_s(1), 0)
    latency_s, refused = one(WORKER.per_s * 2)
    assert 7 < latency_s < 10
    assert refused > 0


def test_percentiles_count_those_who_had_them() -> None:
    """Nine had 1 s and one had 5 s."""
    assert [percentile([(5.0, 1), (1.0, 9)], share) for share in (0.5, 0.9, 0.95)] == [1.0, 1.0, 5.0]
    assert percentile([], 0.99) == 0


def test_the_day_has_a_tenfold_peak_and_a_spike() -> None:
    """One at night, ten at two in the afternoon, eight half a minute after eight in the evening."""
    assert [day.level(hour * 3600) for hour in (3, 14, 23)] == [1, 10, 1]
    assert day.level(20 * 3600 + 30) == 8
    assert max(day.level(float(at)) for at in range(0, 86_400, 60)) == 10


def test_the_manifests_are_what_is_simulated() -> None:
    """With their own numbers: the target of both triggers is half of a batch."""
    found = manifests.scaled_object()
    assert found.target == WORKER.most / 2
    assert found.target in scenes.TARGETS
    assert (found.behaviour.least, found.least) == (1, 1)
    assert manifests.utilization().behaviour.least == 2


def test_gateways_follow_the_load() -> None:
    """No gateway is busy for long: at the peak there are as many as are 70 % busy."""
    rules = manifests.utilization()
    found = gateways.run(lambda now: 1_000 * day.level(now), 0.0002, 30, rules)
    assert found[0].gateways == 2
    at_peak = found[round(14.5 * 3600 / SYNC_S)]
    assert at_peak.ready == at_peak.gateways == 3
    assert at_peak.used == pytest.approx(2 / 3, abs=0.02)


def test_the_measured_worker_is_what_was_measured() -> None:
    """Its full batches make the rate that the benchmark found, within what a batch costs besides."""
    worker = scenes.workers(results.read())["CPU, measured"]
    assert 0.005 < worker.batch_s(1) < 0.03
    assert worker.per_s == pytest.approx(1 / worker.each_s, rel=0.05)
