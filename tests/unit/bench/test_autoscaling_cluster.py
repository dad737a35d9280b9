"""The wiring of the simulated cluster: who is asked what, and when, step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.autoscaling.cluster import Course, Outage, Scene, in_lane, simulate
from bench.autoscaling.deployment import Fleet
from bench.autoscaling.figures import after_outage, figures
from bench.autoscaling.hpa import SYNC_S, Behaviour, Pods, Policy, Rules
from bench.autoscaling.keda import Fallback, ScaledObject
from bench.autoscaling.manifests import Autoscalers, Utilization
from bench.autoscaling.metrics_server import LAG_S, WINDOW_S, Usage
from bench.autoscaling.scenarios import of_many
from bench.autoscaling.worker_profile import Station

AT_ONCE = Behaviour(Rules(0.0, (Policy("Percent", 1_000, 15.0),)), Rules(0.0, (Policy("Percent", 100, 15.0),)))
HOLDS = Station.even(100.0, 0.4)
"""At a load of a half it holds 20 inputs, and 40 at a whole one."""

TWO = Utilization(0.7, 2, 2)


def changes(replicas: list[int]) -> dict[int, int]:
    """Returns in which steps there were to be other numbers of pods, and how many: from the first on."""
    return {0: replicas[0]} | {
        step: replicas[step] for step in range(1, len(replicas)) if replicas[step] != replicas[step - 1]
    }


@pytest.mark.parametrize(
    ("inputs", "waiting", "held", "entries"),
    [
        (1, 5, 3.0, 8.0),
        (32, 5, 64.0, 7.0),
        (70, 0, 140.0, 6.0),  # 70 inputs are three entries of up to 32
        (70, 5, 35.0, 16.5),
    ],
)
def test_what_is_in_the_lane_are_entries(inputs: int, waiting: int, held: float, entries: float) -> None:
    """Of requests that wait, and of inputs that workers hold: each request is as many entries as it becomes."""
    assert in_lane(of_many(Scene(HOLDS, 1.0), inputs), waiting, held) == pytest.approx(entries)


def test_workers_come_by_what_the_others_hold_each_15_s() -> None:
    """50 a second are 20 entries in a worker's hands and none that wait: with a target of ten, two workers; and so on.

    From 20 s on there are 90 a second, 18 for each of two: 36 entries, which is seen at 31 s, and then four workers.
    """
    came = np.concatenate([np.full(20, 50), np.full(100, 90), np.full(60, 20)])
    workers = ScaledObject(10.0, 1, 8, polling_s=SYNC_S, behaviour=AT_ONCE)
    course = simulate(Scene(HOLDS, 1.0, worker_start_s=5.0), Autoscalers(workers, TWO), came)
    assert changes(course.workers) == {0: 1, 1: 2, 31: 4, 121: 1}
    assert changes(course.ready) == {0: 1, 6: 2, 36: 4, 121: 1}


def test_workers_come_by_what_waits_in_entries() -> None:
    """Six requests of 70 inputs wait at 16 s, and gateways take no more: 18 entries, so six workers of three each."""
    scene = of_many(Scene(Station.even(50.0, 0.0), 1.0, worker_start_s=1e9), 70)
    workers = ScaledObject(3.0, 1, 50, polling_s=SYNC_S, behaviour=AT_ONCE)
    course = simulate(scene, Autoscalers(workers, TWO), np.full(16, 2))
    assert course.waiting == 6
    longer = simulate(scene, Autoscalers(workers, TWO), np.full(17, 2))
    assert changes(longer.workers) == {0: 1, 1: 2, 16: 6}


def test_gateways_come_by_what_is_known_of_those_that_are_there() -> None:
    """Seen 30 s late; those that start, or of which nothing is known yet, damp the step, and turn none round.

    Two gateways of 1,000 a second have all their CPU to do from the beginning; that is known at 45 s, and four are to
    be. From 60 s on there are 1,200 a second, which is known at 105 s: 0.6 of two, and two that are to come at 135 s,
    so four stay. At 180 s all four are known to use 0.3: three are enough, and 15 s later two, by what is still 0.3.
    """
    scene = Scene(Station.even(100_000.0, 0.0), 1.0, gateway_start_s=90.0, gateway_cpu_s=0.001)
    autoscalers = Autoscalers(ScaledObject(1e9, 1, 1), Utilization(0.5, 2, 20, AT_ONCE))
    course = simulate(scene, autoscalers, np.concatenate([np.full(60, 2_000), np.full(141, 1_200)]))
    assert changes(course.gateways) == {0: 2, 45: 4, 180: 3, 195: 2}
    assert changes(course.ready_gateways) == {0: 2, 135: 4, 180: 3, 195: 2}


def test_nothing_is_known_of_cpu_at_first_and_of_new_pods() -> None:
    """Until there is a window that has ended LAG_S ago."""
    usage, fleet = Usage(), Fleet(2, 10.0, 5.0)
    for step in range(round(LAG_S + WINDOW_S)):
        assert usage.told(float(step), fleet) == Pods([], missing=2)
        usage.note(0.25 if step < WINDOW_S else 1.0)
    fleet.scale(40.0, 4)
    assert usage.told(45.0, fleet) == Pods([0.25, 0.25], unready=2)
    fleet.advance(50.0)
    assert usage.told(94.0, fleet) == Pods([0.25, 0.25], missing=2)
    assert usage.told(95.0, fleet) == Pods([0.25] * 4)


def away(fallback: Fallback | None, for_s: float) -> tuple[Scene, Course]:
    """Returns three workers of which each has 30 a second to do, with Redis away from 600 s on, and what happened."""
    scene = Scene(HOLDS, 1.0, worker_start_s=5.0, outage=Outage(600.0, for_s))
    workers = ScaledObject(12.0, 1, 8, polling_s=SYNC_S, behaviour=AT_ONCE, fallback=fallback)
    return scene, simulate(scene, Autoscalers(workers, TWO), np.full(6_000, 90))


def test_while_redis_is_away_nobody_is_answered_and_no_worker_goes() -> None:
    """With the fallback of k8s/; those who come are refused, and afterwards all goes on as before."""
    scene, course = away(Fallback(3, 1, "currentReplicasIfHigher"), 300.0)
    assert set(course.workers[500:2_000]) == {3}
    assert course.refused[600:900] == [90] * 300
    assert sum(course.refused) == 90 * 300
    assert not {step for step, *_ in course.answered} & set(range(600, 900))
    found = after_outage(course, scene)
    assert (found["least_ready"], found["slow_after"]) == (3, 0)
    assert found["p99_after_ms"] == pytest.approx(400, rel=0.03)
    assert figures(course, scene).refused == pytest.approx(0.05)


def test_a_fallback_to_a_number_takes_workers_after_more_failures_than_it_bears() -> None:
    """The fourth one in a row: Redis is asked at 601, 616, 631 and 646 s, and then there is one worker."""
    scene, course = away(Fallback(3, 1), 300.0)
    assert (course.workers[645], course.workers[646]) == (3, 1)
    assert after_outage(course, scene)["least_ready"] == 1
    assert after_outage(course, scene)["slow_after"] == 0
    assert sum(course.refused[:600]) == 0


def test_without_a_fallback_nothing_changes_while_redis_is_away() -> None:
    """An HPA without a metric leaves all as it is."""
    _, course = away(None, 300.0)
    assert set(course.workers[500:2_000]) == {3}


def test_what_expires_in_an_outage_is_counted() -> None:
    """Those who waited when Redis went have no answer, and their time ends."""
    scene = replace(Scene(HOLDS, 1.0), outage=Outage(10.0, 60.0))
    course = simulate(scene, Autoscalers(ScaledObject(1e9, 1, 1), TWO), np.full(70, 150))
    assert sum(course.expired) == 500
    assert sum(course.refused) == 150 * 60
