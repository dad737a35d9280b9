"""The rules of the HPA and of KEDA, by the examples of their documentation and by what holds for all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.autoscaling.hpa import (
    DEFAULT,
    SYNC_S,
    Autoscaler,
    Behaviour,
    Pods,
    Policy,
    Rules,
    by_average,
    by_utilization,
)
from bench.autoscaling.keda import Fallback, FallbackBehaviour, ScaledObject, Scaler

AT_ONCE = Rules(0.0, (Policy("Percent", 1_000, 15.0),))
KEEP = Rules(0.0, AT_ONCE.policies, "Disabled")
ALL_AT_ONCE = Rules(0.0, (Policy("Percent", 100, 15.0),))


def syncs(scaler: Autoscaler, current: int, asked: list[int], begin_s: float = 0.0) -> list[int]:
    """Returns the replicas after each sync, when metrics ask for these."""
    found = []
    for number, each in enumerate(asked):
        current = scaler.replicas(begin_s + number * SYNC_S, current, each)
        found.append(current)
    return found


@pytest.mark.parametrize(
    ("total", "target", "replicas", "wanted"),
    [
        (200, 100, 1, 2),  # twice as much as is wanted doubles them
        (100, 100, 2, 1),  # half as much halves them
        (330, 100, 3, 3),  # within a tenth nothing changes
        (270, 100, 3, 3),
        (331, 100, 3, 4),  # and beyond it they are rounded up
        (201, 100, 5, 3),
        (0, 100, 4, 0),
    ],
)
def test_an_average_asks_for_the_ratio(total: float, target: float, replicas: int, wanted: int) -> None:
    """ceil(current × metric / target), with the tolerance."""
    assert by_average(total, target, replicas) == wanted


@pytest.mark.parametrize(
    ("pods", "wanted"),
    [
        (Pods([1.0, 1.0, 1.0]), 6),
        (Pods([0.25, 0.25, 0.25, 0.25]), 2),
        (Pods([0.52, 0.55]), 2),
        (Pods([1.0, 1.0], unready=1), 4),  # 2 of 3 cores: 1.33 times the target, not twice
        (Pods([0.7], unready=2), 3),  # 0.23 of the target would turn the step round
        (Pods([0.2, 0.2], unready=2), 1),  # on the way down they do not count
        (Pods([0.25, 0.25, 0.25], missing=1), 4),  # 0.4375: still down, but ceil(0.875 × 4) is what there is
        (Pods([0.1, 0.1, 0.1], missing=1), 3),
        (Pods([1.0, 1.0], missing=2), 4),  # with two that are idle the target is just met
        (Pods([], unready=2), 2),
    ],
)
def test_use_of_cpu_asks_for_the_mean_ratio(pods: Pods, wanted: int) -> None:
    """With a target of a half; pods that are not ready, or of which nothing is known, damp the step."""
    assert by_utilization(pods, 0.5) == wanted


def test_the_policy_that_allows_most_holds() -> None:
    """Kubernetes' example: down from 80 by 4 pods or 10 per cent in a minute: 8 of 80, 8 of 72, and 4 from 40 on."""
    down = Rules(0.0, (Policy("Pods", 4, 60.0), Policy("Percent", 10, 60.0)))
    scaler, current, found = Autoscaler(1, 100, Behaviour(AT_ONCE, down)), 80, []
    for minute in range(12):
        current = scaler.replicas(minute * 60.0, current, 10)
        found.append(current)
    assert found == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16]


def test_or_the_one_that_allows_least_or_none() -> None:
    """Of 5 per cent and 5 pods, from 80, Min takes the 4 pods, in both directions; Disabled none."""
    policies = (Policy("Percent", 5, 60.0), Policy("Pods", 5, 60.0))
    assert Autoscaler(1, 100, Behaviour(AT_ONCE, Rules(0.0, policies, "Min"))).replicas(0.0, 80, 1) == 76
    assert Autoscaler(1, 100, Behaviour(AT_ONCE, Rules(0.0, policies, "Disabled"))).replicas(0.0, 80, 1) == 80
    up = Rules(0.0, policies, "Min")
    assert Autoscaler(1, 100, Behaviour(up, ALL_AT_ONCE)).replicas(0.0, 80, 100) == 84


def test_a_period_counts_from_what_there_was_at_its_beginning() -> None:
    """Four pods a minute: the second sync of the minute gets nothing more, the first of the next one four again."""
    scaler = Autoscaler(1, 100, Behaviour(Rules(0.0, (Policy("Pods", 4, 60.0),)), ALL_AT_ONCE))
    assert syncs(scaler, 1, [50] * 9) == [5, 5, 5, 5, 9, 9, 9, 9, 13]


def test_down_goes_to_the_most_that_was_asked_for_in_the_window() -> None:
    """By default for five minutes: a dip changes nothing, and once the high is 300 s ago the next high counts."""
    asked = [10, 2, 2, 2, 6, *[2] * 40]
    found = syncs(Autoscaler(1, 20, DEFAULT), 10, asked)
    window = round(300 / SYNC_S)
    assert found[:window] == [10] * window
    assert found[window : window + 4] == [6] * 4
    assert found[window + 4] == 2


def test_up_goes_to_the_least_that_was_asked_for_in_the_window() -> None:
    """With a window of a minute a peak of 45 s adds nothing."""
    behaviour = Behaviour(Rules(60.0, AT_ONCE.policies), ALL_AT_ONCE)
    assert syncs(Autoscaler(1, 20, behaviour), 2, [2, 8, 8, 8, 2, 8, 8, 8, 8]) == [2, 2, 2, 2, 2, 2, 2, 2, 8]


def test_kubernetes_defaults() -> None:
    """Up by four pods or twice as many each 15 s, whichever is more."""
    assert syncs(Autoscaler(1, 100, DEFAULT), 1, [100] * 5) == [5, 10, 20, 40, 80]


policies = st.lists(
    st.builds(Policy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 200), st.sampled_from([15.0, 60.0, 120.0])),
    min_size=1,
    max_size=3,
)
rules = st.builds(Rules, st.sampled_from([0.0, 60.0, 300.0]), policies, st.sampled_from(["Max", "Min", "Disabled"]))


@settings(max_examples=60, deadline=None)
@given(st.builds(Behaviour, rules, rules), st.integers(1, 5), st.integers(5, 40), st.lists(st.integers(0, 60)))
def test_replicas_stay_within_bounds_and_between_now_and_what_was_asked(
    behaviour: Behaviour, least: int, most: int, asked: list[int]
) -> None:
    """Whatever metrics ask for; and no step is away from all that was asked for in the windows."""
    scaler, current = Autoscaler(least, most, behaviour), least
    for number, each in enumerate(asked):
        wanted = scaler.replicas(number * SYNC_S, current, each)
        assert least <= wanted <= most
        assert wanted == current or min(current, *asked[: number + 1]) <= wanted <= max(current, *asked[: number + 1])
        current = wanted


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6), st.sampled_from([15.0, 60.0, 120.0]), st.lists(st.integers(0, 40), min_size=10), st.booleans()
)
def test_it_is_never_faster_than_its_policy(value: int, period_s: float, asked: list[int], up: bool) -> None:
    """Over any period there are at most so many pods more, or fewer, than at its beginning.

    In one direction: what goes the other way in a period is taken off, and may be done again.
    """
    bound = Rules(0.0, (Policy("Pods", value, period_s),))
    behaviour = Behaviour(bound, KEEP) if up else Behaviour(KEEP, bound)
    found = [20, *syncs(Autoscaler(1, 40, behaviour), 20, asked)]
    period = round(period_s / SYNC_S)
    for number in range(len(found) - period):
        assert abs(found[number + period] - found[number]) <= value


SCALED = ScaledObject(10.0, 0, 8, polling_s=15.0, cooldown_s=60.0, behaviour=Behaviour(AT_ONCE, ALL_AT_ONCE))


def test_keda_activates_and_lets_cool_down() -> None:
    """From none to one at the first poll that sees something; to none after more than its time without anything."""
    scaler = Scaler(SCALED)
    assert scaler.replicas(0.0, 0, 0) == 0
    assert scaler.replicas(7.0, 0, 5) == 0
    assert scaler.replicas(15.0, 0, 5) == 1
    assert [scaler.replicas(15.0 + 15.0 * more, 1, 0) for more in range(1, 6)] == [1, 1, 1, 1, 0]


def test_keda_keeps_the_least() -> None:
    """With minReplicaCount 2 there are two, with nothing to do, whatever was there before."""
    scaler = Scaler(ScaledObject(10.0, 2, 8))
    assert scaler.replicas(0.0, 0, 0) == 2
    assert scaler.replicas(30.0, 2, 0) == 2


def test_activation_is_above_the_value() -> None:
    """A metric of just so much is none."""
    for total, wanted in ((5, 0), (6, 1)):
        assert Scaler(ScaledObject(10.0, 0, 8, activation=5)).replicas(0.0, 0, total) == wanted


def test_from_one_on_the_hpa_decides() -> None:
    """Each worker is to have ten: for 45 there are five, as soon as it syncs, and never more than the most."""
    scaler = Scaler(SCALED)
    assert scaler.replicas(0.0, 1, 45) == 5
    assert scaler.replicas(5.0, 5, 1_000) == 5
    assert scaler.replicas(15.0, 5, 1_000) == 8


@pytest.mark.parametrize(
    ("behaviour", "replicas", "wanted"),
    [
        ("static", 2, 2),
        ("currentReplicas", 2, 5),
        ("currentReplicasIfHigher", 2, 5),
        ("currentReplicasIfHigher", 7, 7),
        ("currentReplicasIfLower", 2, 2),
        ("currentReplicasIfLower", 7, 5),
    ],
)
def test_what_it_falls_back_to(behaviour: FallbackBehaviour, replicas: int, wanted: int) -> None:
    """After more failures in a row than it says; until then nothing changes, and the metric counts once it is back."""
    fallback = Fallback(3, replicas, behaviour)
    scaler = Scaler(ScaledObject(10.0, 0, 8, behaviour=Behaviour(AT_ONCE, ALL_AT_ONCE), fallback=fallback))
    assert [scaler.replicas(number * SYNC_S, 5, None) for number in range(4)] == [5, 5, 5, wanted]
    assert scaler.replicas(4 * SYNC_S, wanted, 45) == 5


def test_without_a_fallback_nothing_changes_while_the_metric_cannot_be_had() -> None:
    """Not even to none: nobody knows that there is nothing to do."""
    scaler = Scaler(SCALED)
    assert {scaler.replicas(number * SYNC_S, 5, None) for number in range(20)} == {5}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.integers(0, 500)), st.integers(0, 3), st.integers(3, 10))
def test_keda_stays_within_bounds(totals: list[int | None], least: int, most: int) -> None:
    """Whatever the metric says, and when it says nothing."""
    scaler, current = Scaler(ScaledObject(10.0, least, most, fallback=Fallback(2, 5))), least
    for number, total in enumerate(totals):
        current = scaler.replicas(number * 5.0, current, total)
        assert least <= current <= most
        assert not math.isnan(current)
