"""The wiring of the simulated cluster: which autoscaler reads which metric, and when, step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.autoscaling.cluster import DayHistory, Outage, Scenario, lane_entries, simulate
from bench.autoscaling.deployment import Deployment
from bench.autoscaling.figures import after_outage, figures
from bench.autoscaling.hpa import SYNC_S, Behavior, PodMetrics, ScalingPolicy, ScalingRules
from bench.autoscaling.keda import Fallback, ScaledObject
from bench.autoscaling.manifests import Autoscalers, CpuHpaSpec
from bench.autoscaling.metrics_server import LAG_S, WINDOW_S, MetricsServer
from bench.autoscaling.scenarios import with_large_requests
from bench.autoscaling.worker_profile import WorkerProfile

AT_ONCE = Behavior(
    ScalingRules(0.0, (ScalingPolicy("Percent", 1_000, 15.0),)),
    ScalingRules(0.0, (ScalingPolicy("Percent", 100, 15.0),)),
)
PROFILE = WorkerProfile.constant(100.0, 0.4)
"""A worker holds 20 inputs at half load, and 40 at full load."""

TWO_GATEWAYS = CpuHpaSpec(0.7, 2, 2)


def changes(replicas: list[int]) -> dict[int, int]:
    """Returns the steps in which the number of replicas changed, with the new number; step 0 is always included."""
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
def test_the_lane_counts_entries(inputs: int, waiting: int, held: float, entries: float) -> None:
    """Each waiting request, and each request that a worker holds, counts with all its entries."""
    assert lane_entries(with_large_requests(Scenario(PROFILE, 1.0), inputs), waiting, held) == pytest.approx(entries)


def test_workers_scale_by_the_entries_that_workers_hold() -> None:
    """At 50 requests/s a worker holds 20 entries and none wait: with a target of 10 that asks for two workers.

    From 20 s on 90 requests/s give each of the two workers 18 entries. At the sync at 31 s these 36 entries ask for
    four workers.
    """
    requests = np.concatenate([np.full(20, 50), np.full(100, 90), np.full(60, 20)])
    workers = ScaledObject(10.0, 1, 8, polling_interval_s=SYNC_S, behavior=AT_ONCE)
    history = simulate(Scenario(PROFILE, 1.0, worker_start_s=5.0), Autoscalers(workers, TWO_GATEWAYS), requests)
    assert changes(history.workers) == {0: 1, 1: 2, 31: 4, 121: 1}
    assert changes(history.ready_workers) == {0: 1, 6: 2, 36: 4, 121: 1}


def test_workers_scale_by_the_entries_that_wait() -> None:
    """At 16 s six requests of 70 inputs wait, the gateways' limit: 18 entries ask for six workers of three each."""
    scenario = with_large_requests(Scenario(WorkerProfile.constant(50.0, 0.0), 1.0, worker_start_s=1e9), 70)
    workers = ScaledObject(3.0, 1, 50, polling_interval_s=SYNC_S, behavior=AT_ONCE)
    history = simulate(scenario, Autoscalers(workers, TWO_GATEWAYS), np.full(16, 2))
    assert history.num_waiting == 6
    longer = simulate(scenario, Autoscalers(workers, TWO_GATEWAYS), np.full(17, 2))
    assert changes(longer.workers) == {0: 1, 1: 2, 16: 6}


def test_gateways_scale_by_delayed_metrics_of_existing_pods() -> None:
    """The HPA sees CPU usage 30 s late; pods that start, or have no metrics, damp a step and never reverse it.

    Two gateways of 1,000 requests/s are at full load from the beginning. The HPA sees that at 45 s, and orders four.
    From 60 s on there are 1,200 requests/s, which the HPA sees at 105 s: a usage of 0.6 by two pods, and two pods that
    are ready at 135 s, so four remain. At 180 s the HPA sees a usage of 0.3 by all four and orders three; 15 s later
    the usage that it sees is still 0.3, and it orders two.
    """
    scenario = Scenario(WorkerProfile.constant(100_000.0, 0.0), 1.0, gateway_start_s=90.0, gateway_cpu_s=0.001)
    autoscalers = Autoscalers(ScaledObject(1e9, 1, 1), CpuHpaSpec(0.5, 2, 20, AT_ONCE))
    history = simulate(scenario, autoscalers, np.concatenate([np.full(60, 2_000), np.full(141, 1_200)]))
    assert changes(history.gateways) == {0: 2, 45: 4, 180: 3, 195: 2}
    assert changes(history.ready_gateways) == {0: 2, 135: 4, 180: 3, 195: 2}


def test_new_pods_have_no_cpu_metrics() -> None:
    """A pod has metrics once it was ready for a whole window that ended LAG_S ago."""
    server, pods = MetricsServer(), Deployment(2, 10.0, 5.0)
    for step in range(round(LAG_S + WINDOW_S)):
        assert server.pod_metrics(float(step), pods) == PodMetrics([], missing=2)
        server.record(0.25 if step < WINDOW_S else 1.0)
    pods.scale(40.0, 4)
    assert server.pod_metrics(45.0, pods) == PodMetrics([0.25, 0.25], unready=2)
    pods.advance(50.0)
    assert server.pod_metrics(94.0, pods) == PodMetrics([0.25, 0.25], missing=2)
    assert server.pod_metrics(95.0, pods) == PodMetrics([0.25] * 4)


def with_outage(fallback: Fallback | None, duration_s: float) -> tuple[Scenario, DayHistory]:
    """Returns the history of three workers with 30 requests/s each, and an outage of Redis from 600 s on."""
    scenario = Scenario(PROFILE, 1.0, worker_start_s=5.0, outage=Outage(600.0, duration_s))
    workers = ScaledObject(12.0, 1, 8, polling_interval_s=SYNC_S, behavior=AT_ONCE, fallback=fallback)
    return scenario, simulate(scenario, Autoscalers(workers, TWO_GATEWAYS), np.full(6_000, 90))


def test_an_outage_refuses_all_requests_and_stops_no_worker() -> None:
    """With the fallback of k8s/ requests are refused during the outage, and are answered as before after it."""
    scenario, history = with_outage(Fallback(3, 1, "currentReplicasIfHigher"), 300.0)
    assert set(history.workers[500:2_000]) == {3}
    assert history.refused[600:900] == [90] * 300
    assert sum(history.refused) == 90 * 300
    assert not {step for step, *_ in history.answered} & set(range(600, 900))
    actual = after_outage(history, scenario)
    assert (actual["min_ready"], actual["slow_after"]) == (3, 0)
    assert actual["p99_after_ms"] == pytest.approx(400, rel=0.03)
    assert figures(history, scenario).refused == pytest.approx(0.05)


def test_a_static_fallback_stops_workers_after_its_failure_threshold() -> None:
    """The fourth consecutive failure counts: the queries fail at 601, 616, 631 and 646 s, then one worker remains."""
    scenario, history = with_outage(Fallback(3, 1), 300.0)
    assert (history.workers[645], history.workers[646]) == (3, 1)
    assert after_outage(history, scenario)["min_ready"] == 1
    assert after_outage(history, scenario)["slow_after"] == 0
    assert sum(history.refused[:600]) == 0


def test_without_a_fallback_an_outage_changes_nothing() -> None:
    """An HPA without a metric keeps the number of replicas."""
    _, history = with_outage(None, 300.0)
    assert set(history.workers[500:2_000]) == {3}


def test_requests_that_expire_in_an_outage_are_counted() -> None:
    """Requests that wait when Redis fails get no answer and expire."""
    scenario = replace(Scenario(PROFILE, 1.0), outage=Outage(10.0, 60.0))
    history = simulate(scenario, Autoscalers(ScaledObject(1e9, 1, 1), TWO_GATEWAYS), np.full(70, 150))
    assert sum(history.expired) == 500
    assert sum(history.refused) == 150 * 60
