"""The rules of the HPA and of KEDA: the examples of their documentation, and properties that hold for all inputs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.autoscaling.hpa import (
    DEFAULT,
    SYNC_S,
    Behavior,
    HorizontalPodAutoscaler,
    PodMetrics,
    ScalingPolicy,
    ScalingRules,
    replicas_for_average_value,
    replicas_for_utilization,
)
from bench.autoscaling.keda import Fallback, FallbackBehavior, KedaScaler, ScaledObject

AT_ONCE = ScalingRules(0.0, (ScalingPolicy("Percent", 1_000, 15.0),))
KEEP = ScalingRules(0.0, AT_ONCE.policies, "Disabled")
ALL_AT_ONCE = ScalingRules(0.0, (ScalingPolicy("Percent", 100, 15.0),))


def syncs(scaler: HorizontalPodAutoscaler, current: int, recommended: list[int], begin_s: float = 0.0) -> list[int]:
    """Returns the replicas after each sync, given the recommendations of the metrics."""
    actual = []
    for number, each in enumerate(recommended):
        current = scaler.replicas(begin_s + number * SYNC_S, current, each)
        actual.append(current)
    return actual


@pytest.mark.parametrize(
    ("total", "target", "replicas", "desired"),
    [
        (200, 100, 1, 2),  # twice the target doubles the replicas
        (100, 100, 2, 1),  # half the target halves them
        (330, 100, 3, 3),  # within a tenth nothing changes
        (270, 100, 3, 3),
        (331, 100, 3, 4),  # beyond a tenth the replicas are rounded up
        (201, 100, 5, 3),
        (0, 100, 4, 0),
    ],
)
def test_an_average_value_scales_by_the_ratio(total: float, target: float, replicas: int, desired: int) -> None:
    """The result is ceil(current × metric / target), with the tolerance."""
    assert replicas_for_average_value(total, target, replicas) == desired


@pytest.mark.parametrize(
    ("pods", "desired"),
    [
        (PodMetrics([1.0, 1.0, 1.0]), 6),
        (PodMetrics([0.25, 0.25, 0.25, 0.25]), 2),
        (PodMetrics([0.52, 0.55]), 2),
        (PodMetrics([1.0, 1.0], unready=1), 4),  # 2 of 3 cores: 1.33 times the target, not twice
        (PodMetrics([0.7], unready=2), 3),  # 0.23 of the target would reverse the step
        (PodMetrics([0.2, 0.2], unready=2), 1),  # on the way down unready pods do not count
        (PodMetrics([0.25, 0.25, 0.25], missing=1), 4),  # 0.4375: still down, but ceil(0.875 × 4) is the current number
        (PodMetrics([0.1, 0.1, 0.1], missing=1), 3),
        (PodMetrics([1.0, 1.0], missing=2), 4),  # with two idle pods the target is just met
        (PodMetrics([], unready=2), 2),
    ],
)
def test_utilization_scales_by_the_mean_ratio(pods: PodMetrics, desired: int) -> None:
    """With a target of 0.5, pods that are not ready, or have no metrics, damp the step."""
    assert replicas_for_utilization(pods, 0.5) == desired


def test_the_policy_with_the_largest_change_applies() -> None:
    """Kubernetes' example: from 80 down by 4 pods or 10 % in a minute removes 8 of 80, 8 of 72, and 4 from 40 on."""
    down = ScalingRules(0.0, (ScalingPolicy("Pods", 4, 60.0), ScalingPolicy("Percent", 10, 60.0)))
    scaler, current, actual = HorizontalPodAutoscaler(1, 100, Behavior(AT_ONCE, down)), 80, []
    for minute in range(12):
        current = scaler.replicas(minute * 60.0, current, 10)
        actual.append(current)
    assert actual == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16]


def test_select_policy_takes_the_smallest_change_or_none() -> None:
    """From 80, of 5 per cent and 5 pods, Min takes 4 pods in both directions, and Disabled takes none."""
    policies = (ScalingPolicy("Percent", 5, 60.0), ScalingPolicy("Pods", 5, 60.0))
    smallest, disabled = ScalingRules(0.0, policies, "Min"), ScalingRules(0.0, policies, "Disabled")
    assert HorizontalPodAutoscaler(1, 100, Behavior(AT_ONCE, smallest)).replicas(0.0, 80, 1) == 76
    assert HorizontalPodAutoscaler(1, 100, Behavior(AT_ONCE, disabled)).replicas(0.0, 80, 1) == 80
    assert HorizontalPodAutoscaler(1, 100, Behavior(smallest, ALL_AT_ONCE)).replicas(0.0, 80, 100) == 84


def test_a_period_counts_from_the_replicas_at_its_beginning() -> None:
    """With four pods a minute the further syncs of a minute add nothing, and the first of the next adds four again."""
    rules = ScalingRules(0.0, (ScalingPolicy("Pods", 4, 60.0),))
    scaler = HorizontalPodAutoscaler(1, 100, Behavior(rules, ALL_AT_ONCE))
    assert syncs(scaler, 1, [50] * 9) == [5, 5, 5, 5, 9, 9, 9, 9, 13]


def test_down_goes_to_the_highest_recommendation_of_the_window() -> None:
    """With the default window of 300 s a dip changes nothing; when the peak leaves the window, the next peak counts."""
    recommended = [10, 2, 2, 2, 6, *[2] * 40]
    actual = syncs(HorizontalPodAutoscaler(1, 20, DEFAULT), 10, recommended)
    window = round(300 / SYNC_S)
    assert actual[:window] == [10] * window
    assert actual[window : window + 4] == [6] * 4
    assert actual[window + 4] == 2


def test_up_goes_to_the_lowest_recommendation_of_the_window() -> None:
    """With a window of a minute a peak of 45 s adds nothing."""
    behavior = Behavior(ScalingRules(60.0, AT_ONCE.policies), ALL_AT_ONCE)
    actual = syncs(HorizontalPodAutoscaler(1, 20, behavior), 2, [2, 8, 8, 8, 2, 8, 8, 8, 8])
    assert actual == [2, 2, 2, 2, 2, 2, 2, 2, 8]


def test_kubernetes_defaults() -> None:
    """Every 15 s the replicas grow by four or double, whichever is more."""
    assert syncs(HorizontalPodAutoscaler(1, 100, DEFAULT), 1, [100] * 5) == [5, 10, 20, 40, 80]


policies = st.lists(
    st.builds(
        ScalingPolicy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 200), st.sampled_from([15.0, 60.0, 120.0])
    ),
    min_size=1,
    max_size=3,
)
rules = st.builds(
    ScalingRules, st.sampled_from([0.0, 60.0, 300.0]), policies, st.sampled_from(["Max", "Min", "Disabled"])
)


@settings(max_examples=60, deadline=None)
@given(st.builds(Behavior, rules, rules), st.integers(1, 5), st.integers(5, 40), st.lists(st.integers(0, 60)))
def test_replicas_stay_within_bounds_and_the_range_of_recommendations(
    behavior: Behavior, min_replicas: int, max_replicas: int, recommended: list[int]
) -> None:
    """With any recommendations replicas stay in bounds, and no step leaves the range of the current and recommended."""
    scaler, current = HorizontalPodAutoscaler(min_replicas, max_replicas, behavior), min_replicas
    for number, each in enumerate(recommended):
        desired, past = scaler.replicas(number * SYNC_S, current, each), recommended[: number + 1]
        assert min_replicas <= desired <= max_replicas
        assert desired == current or min(current, *past) <= desired <= max(current, *past)
        current = desired


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6), st.sampled_from([15.0, 60.0, 120.0]), st.lists(st.integers(0, 40), min_size=10), st.booleans()
)
def test_it_is_never_faster_than_its_policy(value: int, period_s: float, recommended: list[int], up: bool) -> None:
    """In any period the replicas rise, or fall, by at most the value of the policy.

    Only one direction is enabled: a change in the other direction within a period would be subtracted, and could be
    made again.
    """
    bound = ScalingRules(0.0, (ScalingPolicy("Pods", value, period_s),))
    behavior = Behavior(bound, KEEP) if up else Behavior(KEEP, bound)
    actual = [20, *syncs(HorizontalPodAutoscaler(1, 40, behavior), 20, recommended)]
    period = round(period_s / SYNC_S)
    for number in range(len(actual) - period):
        assert abs(actual[number + period] - actual[number]) <= value


SCALED = ScaledObject(
    10.0, 0, 8, polling_interval_s=15.0, cooldown_period_s=60.0, behavior=Behavior(AT_ONCE, ALL_AT_ONCE)
)


def test_keda_activates_and_cools_down() -> None:
    """The first poll with entries activates one replica; after the cooldown period without entries there is none."""
    scaler = KedaScaler(SCALED)
    assert scaler.replicas(0.0, 0, 0) == 0
    assert scaler.replicas(7.0, 0, 5) == 0
    assert scaler.replicas(15.0, 0, 5) == 1
    assert [scaler.replicas(15.0 + 15.0 * more, 1, 0) for more in range(1, 6)] == [1, 1, 1, 1, 0]


def test_keda_keeps_the_minimum() -> None:
    """With minReplicaCount 2 there are two replicas without any entries, whatever the current number."""
    scaler = KedaScaler(ScaledObject(10.0, 2, 8))
    assert scaler.replicas(0.0, 0, 0) == 2
    assert scaler.replicas(30.0, 2, 0) == 2


def test_activation_is_above_the_value() -> None:
    """A metric equal to the activation value does not activate."""
    for total, desired in ((5, 0), (6, 1)):
        assert KedaScaler(ScaledObject(10.0, 0, 8, activation=5)).replicas(0.0, 0, total) == desired


def test_from_one_replica_on_the_hpa_decides() -> None:
    """With a target of 10 entries 45 give five replicas at the next sync, and 1,000 give the maximum."""
    scaler = KedaScaler(SCALED)
    assert scaler.replicas(0.0, 1, 45) == 5
    assert scaler.replicas(5.0, 5, 1_000) == 5
    assert scaler.replicas(15.0, 5, 1_000) == 8


@pytest.mark.parametrize(
    ("behavior", "replicas", "desired"),
    [
        ("static", 2, 2),
        ("currentReplicas", 2, 5),
        ("currentReplicasIfHigher", 2, 5),
        ("currentReplicasIfHigher", 7, 7),
        ("currentReplicasIfLower", 2, 2),
        ("currentReplicasIfLower", 7, 5),
    ],
)
def test_fallback_behaviors(behavior: FallbackBehavior, replicas: int, desired: int) -> None:
    """The fallback applies after more consecutive failures than its threshold, until the metric can be read again."""
    fallback = Fallback(3, replicas, behavior)
    scaler = KedaScaler(ScaledObject(10.0, 0, 8, behavior=Behavior(AT_ONCE, ALL_AT_ONCE), fallback=fallback))
    assert [scaler.replicas(number * SYNC_S, 5, None) for number in range(4)] == [5, 5, 5, desired]
    assert scaler.replicas(4 * SYNC_S, desired, 45) == 5


def test_without_a_fallback_nothing_changes_while_the_metric_cannot_be_read() -> None:
    """The replicas do not go to 0 either: a missing metric does not show that the queue is empty."""
    scaler = KedaScaler(SCALED)
    assert {scaler.replicas(number * SYNC_S, 5, None) for number in range(20)} == {5}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.integers(0, 500)), st.integers(0, 3), st.integers(3, 10))
def test_keda_stays_within_bounds(totals: list[int | None], min_replicas: int, max_replicas: int) -> None:
    """The replicas stay in bounds for any value of the metric, and without one."""
    scaled = ScaledObject(10.0, min_replicas, max_replicas, fallback=Fallback(2, 5))
    scaler, current = KedaScaler(scaled), min_replicas
    for number, total in enumerate(totals):
        current = scaler.replicas(number * 5.0, current, total)
        assert min_replicas <= current <= max_replicas
        assert not math.isnan(current)
