"""The simulated day: the load, the queue, the pods, the whole cluster, and the settings read from k8s/."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from api.settings import GatewaySettings
from bench.autoscaling import report
from bench.autoscaling.cluster import DayHistory, Scenario, simulate
from bench.autoscaling.deployment import Deployment
from bench.autoscaling.experiments import experiments
from bench.autoscaling.fifo_queue import Cohort, FifoQueue
from bench.autoscaling.figures import figures, p99_ms
from bench.autoscaling.hpa import DEFAULT, Behavior, ScalingPolicy, ScalingRules
from bench.autoscaling.keda import ScaledObject
from bench.autoscaling.manifests import (
    CPU_WORKERS,
    K8S,
    Autoscalers,
    CpuHpaSpec,
    from_manifests,
    on_cpus,
    scaled_object,
)
from bench.autoscaling.scenarios import with_capacity, with_large_requests
from bench.autoscaling.traffic import DAY_S, HOUR_S, PEAK, Crowd, arrivals, levels
from bench.autoscaling.worker_profile import WorkerProfile, measure
from bench.simulation.cluster import simulate as simulate_batches
from bench.simulation.comparison import capacity_of
from bench.simulation.setup import DEVICES, RequestPath, Setup
from bench.simulation.traffic import Traffic

CONSTANT = WorkerProfile.constant(100.0, 0.02)
SCENARIO = Scenario(CONSTANT, 40.0, worker_start_s=20.0)
TRIGGERS = [
    {"metadata": {"stream": f"rb:{{minilm}}:q:{lane}", "streamLength": target}}
    for lane, target in (("interactive", "7"), ("bulk", "9"))
]
NO_CROWD = Crowd(at_s=2 * DAY_S)


def fixed(workers: int) -> Autoscalers:
    """Returns autoscalers that change nothing."""
    return Autoscalers(ScaledObject(1e9, workers, workers), CpuHpaSpec(0.7, 2, 2))


def test_the_peak_is_ten_times_the_night_and_the_crowd_rises_linearly() -> None:
    """The levels are those documented, hour by hour."""
    hours = np.array([2.0, 14.5, 20.0, 20.5, 20.5 + 10 / HOUR_S, 20.5 + 20 / HOUR_S, 20.9])
    actual = levels(hours * HOUR_S, Crowd())
    usual = levels(hours * HOUR_S, NO_CROWD)
    assert actual[1] / actual[0] == PEAK
    assert list(actual - usual) == pytest.approx([0, 0, 0, 0, 2.5, 5, 0])


def test_arrivals_sum_to_the_expected_number_and_repeat_for_a_seed() -> None:
    """The day's arrivals are within 0.5 % of the expected number; the same seed gives the same arrivals."""
    actual = arrivals(40.0, Crowd(), 1)
    expected = 40.0 * levels(np.arange(DAY_S), Crowd()).sum()
    assert actual.sum() == pytest.approx(expected, rel=0.005)
    assert (actual == arrivals(40.0, Crowd(), 1)).all()
    assert (actual != arrivals(40.0, Crowd(), 2)).any()


def test_a_queue_serves_in_order_and_requests_above_its_rate_wait() -> None:
    """Of 20 requests in a second, before a server of 10 per second, the first 10 wait 0.25 s on average."""
    queue = FifoQueue()
    queue.append(Cohort(0.0, 1.0, 20))
    ((first, waited_s),) = queue.serve(0.0, 1.0, 10.0)
    assert (first.size, queue.length) == (10, 10)
    assert waited_s == pytest.approx(0.25)
    queue.append(Cohort(1.0, 1.0, 3))
    departures = queue.serve(1.0, 1.0, 10.0)
    assert [each.cohort.size for each in departures] == [10]
    assert departures[0].waited_s == pytest.approx(0.75)
    assert queue.expire(1.0) == 0
    assert (queue.expire(2.0), queue.length) == (3, 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 30)), min_size=1, max_size=30))
def test_a_queue_loses_no_request(steps: list[tuple[int, float]]) -> None:
    """Each request is served or still queued, no wait is negative, and the capacity is never exceeded."""
    queue, appended, served, capacity = FifoQueue(), 0, 0, 0.0
    for now, (size, per_s) in enumerate(steps):
        queue.append(Cohort(now, 1.0, size))
        departures = queue.serve(now, 1.0, per_s)
        appended, capacity = appended + size, capacity + per_s
        served += sum(each.cohort.size for each in departures)
        assert all(each.waited_s >= 0 for each in departures)
        assert appended == served + queue.length
        assert served <= capacity + 1e-6


def test_pods_need_time_to_start_and_stop_and_starting_ones_stop_first() -> None:
    """A pod is ready after 3 s, ends 2 s after the order to stop, and is billed until then."""
    pods = Deployment(1, 3.0, 2.0)
    pods.scale(0.0, 3)
    pods.advance(2.9)
    assert (pods.ready, pods.replicas, pods.starting) == (1, 3, 2)
    pods.scale(2.9, 2)
    assert (pods.ready, pods.replicas, pods.billed) == (1, 2, 2)
    pods.advance(3.0)
    assert (pods.ready, pods.starting) == (2, 0)
    assert [pods.ready_since(moment) for moment in (-1.0, 2.9, 3.0)] == [1, 1, 0]
    pods.scale(3.0, 1)
    assert (pods.ready, pods.replicas, pods.billed, pods.ready_since(-1.0)) == (1, 1, 2, 0)
    pods.advance(5.0)
    assert pods.billed == 1


def outcome(history: DayHistory) -> int:
    """Returns the number of requests that ended or are still queued."""
    return history.num_answered + sum(history.refused) + sum(history.expired) + history.num_waiting


@settings(max_examples=25, deadline=None)
@given(
    st.floats(1.0, 60.0),
    st.integers(1, 5),
    st.sampled_from([5.0, 60.0]),
    st.sampled_from([1, 3, 70]),
    st.integers(1, 9),
)
def test_each_request_has_one_end(target: float, max_replicas: int, start_s: float, inputs: int, seed: int) -> None:
    """A request is answered, refused, expired or queued; replicas stay in bounds, and ready ones are among them."""
    scenario = with_large_requests(replace(SCENARIO, night_per_s=200.0, worker_start_s=start_s), inputs)
    autoscalers = Autoscalers(ScaledObject(target, 1, max_replicas), CpuHpaSpec(0.7, 1, 3))
    requests = np.random.default_rng(seed).poisson(scenario.night_per_s, 200)
    history = simulate(scenario, autoscalers, requests, seed)
    assert sum(history.arrived) == requests.sum() == outcome(history)
    assert all(1 <= each <= max_replicas for each in history.workers)
    assert all(
        ready <= workers <= billed
        for ready, workers, billed in zip(history.ready_workers, history.workers, history.billed_workers, strict=True)
    )
    assert all(1 <= each <= 3 for each in history.gateways)


def test_the_same_seed_gives_the_same_day() -> None:
    """Every step and every cohort is equal to the last digit; another seed gives another day."""
    requests = arrivals(40.0, Crowd(600.0), 3, day_s=HOUR_S)
    autoscalers = Autoscalers(ScaledObject(16.0, 1, 8), CpuHpaSpec(0.7, 2, 10))
    noisy = replace(SCENARIO, profile=replace(CONSTANT, occupancy_std=np.full(len(CONSTANT.loads), 3.0)))
    assert simulate(noisy, autoscalers, requests, 3) == simulate(noisy, autoscalers, requests, 3)
    assert simulate(noisy, autoscalers, requests, 3) != simulate(noisy, autoscalers, requests, 4)


def test_a_fleet_below_its_capacity_answers_within_the_latency_of_a_worker() -> None:
    """Two workers of 100 requests/s answer 80 requests/s in 20 ms each, and cost two worker-hours per hour."""
    history = simulate(SCENARIO, fixed(2), np.full(3_600, 80))
    actual = figures(history, SCENARIO)
    assert (actual.refused, actual.expired, actual.slow, actual.changes) == (0, 0, 0, 0)
    assert actual.p50_ms == pytest.approx(20, rel=0.03)
    assert actual.p99_ms == pytest.approx(20, rel=0.03)
    assert actual.worker_hours == pytest.approx(2)


def test_the_gateways_bound_the_wait_in_an_overloaded_fleet() -> None:
    """Gateways refuse requests that would not be answered in four fifths of their time; so the wait has that bound."""
    history = simulate(SCENARIO, fixed(1), np.full(600, 200))
    actual = figures(history, SCENARIO)
    assert actual.refused == pytest.approx(0.5, abs=0.03)
    budget_s = (GatewaySettings().request_timeout_ms + GatewaySettings().request_timeout_per_input_ms) / 1000
    assert p99_ms(history, SCENARIO, 60.0)[-1] == pytest.approx(0.8 * 1000 * budget_s, rel=0.15)
    assert sum(history.expired) == 0


def test_workers_scale_up_while_entries_wait_and_down_afterwards() -> None:
    """250 requests/s for ten minutes add workers to one of 100 requests/s; after an hour of 10 there is one again."""
    requests = np.concatenate([np.full(600, 250), np.full(3_600, 10)])
    workers = from_manifests().workers
    history = simulate(SCENARIO, Autoscalers(replace(workers, target=4.0), CpuHpaSpec(0.7, 2, 2)), requests)
    assert history.workers[0] == 1
    assert max(history.workers[:600]) >= 3
    assert history.workers[-1] == 1
    assert outcome(history) == requests.sum()


def test_gateways_are_scaled_by_their_cpu() -> None:
    """5,000 requests/s of 0.4 ms each need two cores, so three gateways at 70 %; a long pause leaves one."""
    scenario = replace(SCENARIO, profile=WorkerProfile.constant(20_000.0, 0.001), gateway_cpu_s=0.0004)
    autoscalers = Autoscalers(ScaledObject(1e9, 1, 1), CpuHpaSpec(0.7, 1, 10))
    history = simulate(scenario, autoscalers, np.concatenate([np.full(600, 5_000), np.zeros(900, dtype=int)]))
    assert history.gateways[599] == 3
    assert history.gateways[-1] == 1
    assert outcome(history) == sum(history.arrived)


def test_it_agrees_with_the_simulator_of_batches() -> None:
    """With 10 s above the capacity of two workers between 10 s below it, p99 is within 10 % of the batch simulator."""
    device, path = DEVICES["simulated"], RequestPath(0.0, 0.0, 0.0, 0.0)
    capacity = 2 * capacity_of(device)
    rates = np.repeat([0.6, 1.3, 0.6], 10) * capacity
    counts = np.random.default_rng(1).poisson(rates)
    sent = np.sort(
        np.concatenate([second + np.random.default_rng(second).random(n) for second, n in enumerate(counts)])
    )
    batches = simulate_batches(Setup(device, path, workers=2), Traffic(iter(sent.tolist()), 30.0), 1)
    expected = [each.answered_s - each.sent_s for each in batches.requests if each.answered_s is not None]

    scenario = Scenario(measure(device, path, 500), 0.0, tokens=1.0, gateway_cpu_s=1e-6)
    actual = figures(simulate(scenario, fixed(2), counts), scenario)
    assert actual.p99_ms == pytest.approx(1000 * float(np.quantile(expected, 0.99)), rel=0.1)
    assert actual.p50_ms == pytest.approx(1000 * float(np.quantile(expected, 0.5)), rel=0.5)
    assert actual.refused == 0


def test_occupancy_and_latency_rise_with_load() -> None:
    """The occupancy rises with the load; figures between two measured loads are interpolated at every quantile."""
    profile = measure(with_capacity(DEVICES["simulated"], 100.0), RequestPath(), 500)
    assert profile.inputs_per_s == pytest.approx(100.0)
    assert list(profile.occupancy) == sorted(profile.occupancy)
    assert profile.occupancy_at(0.0) == (0.0, 0.0)
    assert profile.occupancy_at(0.5)[0] == pytest.approx(profile.occupancy[2:4].mean())
    between = profile.latencies(np.array([0.4, 0.5, 0.6, 0.99]))
    assert between[1] == pytest.approx((between[0] + between[2]) / 2)
    assert (between[3] == profile.latency_s[-1]).all()


def test_the_manifests_are_read_completely() -> None:
    """The simulation uses the settings of k8s/; only the targets differ on CPUs."""
    spec = next(yaml.safe_load_all((K8S / "components/keda/scaledobject.yaml").read_text(encoding="utf-8")))["spec"]
    autoscalers = from_manifests()
    assert (autoscalers.workers.min_replicas, autoscalers.workers.max_replicas) == (
        spec["minReplicaCount"],
        spec["maxReplicaCount"],
    )
    assert [each["metadata"]["streamLength"] for each in spec["triggers"]] == [
        f"{each:g}" for each in (autoscalers.workers.target, autoscalers.workers.bulk_target)
    ]
    assert autoscalers.workers.fallback is not None
    assert autoscalers.workers.behavior.down == ScalingRules(900.0, [ScalingPolicy("Pods", 1, 120.0)])
    cpu = on_cpus(autoscalers).workers
    assert cpu.target < autoscalers.workers.target
    assert cpu.bulk_target < autoscalers.workers.bulk_target
    assert (
        replace(cpu, target=autoscalers.workers.target, bulk_target=autoscalers.workers.bulk_target)
        == autoscalers.workers
    )
    assert (autoscalers.gateways.target, autoscalers.gateways.min_replicas) == (0.5, 2)


def test_both_lanes_are_read_without_a_consumer_group() -> None:
    """Each lane has its target, in any order of the triggers; a consumerGroup, which changes the metric, is refused."""
    manifest = next(yaml.safe_load_all((K8S / "components/keda/scaledobject.yaml").read_text(encoding="utf-8")))
    triggers = {each["name"]: each["metadata"] for each in manifest["spec"]["triggers"]}
    assert {name: each["stream"] for name, each in triggers.items()} == {
        lane: f"rb:{{minilm}}:q:{lane}" for lane in ("interactive", "bulk")
    }
    read = scaled_object(manifest)
    assert (read.target, read.bulk_target) == tuple(
        float(triggers[lane]["streamLength"]) for lane in ("interactive", "bulk")
    )
    manifest["spec"]["triggers"].reverse()
    assert scaled_object(manifest) == read
    triggers["bulk"]["consumerGroup"] = "workers"
    with pytest.raises(ValueError, match="do not use the length of each lane"):
        scaled_object(manifest)
    manifest["spec"]["triggers"].pop()
    with pytest.raises(ValueError, match="do not use the length of each lane"):
        scaled_object(manifest)


def test_a_patch_for_cpus_with_other_changes_is_refused(tmp_path: Path) -> None:
    """A patch that replaces more than targets raises: the cluster would apply it, and the simulation would not."""
    shutil.copytree(K8S, tmp_path / "k8s")
    patch = [{"op": "replace", "path": "/spec/maxReplicaCount", "value": 4}]
    (tmp_path / "k8s" / CPU_WORKERS).write_text(yaml.safe_dump(patch), encoding="utf-8")
    with pytest.raises(ValueError, match="replace /spec/maxReplicaCount is not the target of a trigger"):
        on_cpus(from_manifests(), tmp_path / "k8s")


def test_missing_settings_have_the_defaults_of_keda_and_kubernetes(tmp_path: Path) -> None:
    """KEDA polls every 30 s, with 0 to 100 replicas; Kubernetes scales down after five minutes."""
    scaled = {"spec": {"triggers": TRIGGERS}, "kind": "ScaledObject"}
    cpu = {"resource": {"name": "cpu", "target": {"averageUtilization": 50}}}
    hpa = {"spec": {"maxReplicas": 3, "metrics": [cpu]}, "kind": "HorizontalPodAutoscaler"}
    for name, manifest in {"components/keda/scaledobject.yaml": scaled, "base/gateway-hpa.yaml": hpa}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(yaml.safe_dump(manifest), encoding="utf-8")
    autoscalers = from_manifests(tmp_path)
    assert autoscalers.workers == ScaledObject(7.0, 0, 100, 0.0, 30.0, 300.0, DEFAULT, None, 9.0)
    assert autoscalers.gateways == CpuHpaSpec(0.5, 1, 3, DEFAULT)


def test_the_target_can_be_reached_before_gateways_refuse() -> None:
    """With entries of the maximum size, target × maximum of workers is below the queue's bound.

    Otherwise the fleet would never reach its maximum.
    """
    settings_, autoscalers = GatewaySettings.model_construct(), from_manifests()
    entries = settings_.max_queue_inputs / settings_.inputs_per_entry
    for each in (autoscalers, on_cpus(autoscalers)):
        assert each.workers.target * each.workers.max_replicas < entries


def test_each_experiment_has_a_unique_label() -> None:
    """No two rows of a table have the same label, and the chosen target is among the targets."""
    chosen = from_manifests()
    by_device = {"CPU": SCENARIO, "GPU": SCENARIO}
    actual = list(experiments(by_device, {"CPU": on_cpus(chosen), "GPU": chosen}))
    names = [(each.table, each.device, each.label) for each in actual]
    assert len(names) == len(set(names))
    for device in by_device:
        targets = {each.autoscalers.workers.target for each in actual if each.table == "many" and each.device == device}
        assert (on_cpus(chosen) if device == "CPU" else chosen).workers.target in targets


def test_a_day_is_reported_in_spans() -> None:
    """Each span of five minutes has its offered rate, its capacity and its p99."""
    actual = report.day_series(simulate(SCENARIO, fixed(2), np.full(1_200, 80)), SCENARIO, "two", {"workers": 2})
    assert actual["at_s"] == [0, 300, 600, 900]
    assert actual["offered_per_s"] == [80] * 4
    assert actual["capacity_per_s"] == [200] * 4
    assert actual["p99_ms"] == pytest.approx([20] * 4, rel=0.03)
    assert actual["workers"] == actual["workers_most"] == actual["gateways"] == [2] * 4


def test_a_span_reports_the_minimum_of_ready_pods() -> None:
    """A dip within five minutes shows in the minimum, and a pod that is still starting does not count as ready."""
    history = simulate(SCENARIO, fixed(2), np.full(600, 80))
    history.ready_workers[100], history.ready_gateways[400], history.workers[:] = 1, 1, [8] * 600
    actual = report.day_series(history, SCENARIO, "two", {"workers": 8})
    assert (actual["workers"], actual["workers_most"]) == ([1, 2], [2, 2])
    assert (actual["gateways"], actual["gateways_most"]) == ([2, 1], [2, 2])
    assert actual["capacity_per_s"] == [100, 200]


def test_rules_in_both_directions_are_read() -> None:
    """A behavior that is set in one direction keeps the default in the other."""
    manifest = {
        "spec": {
            "triggers": TRIGGERS,
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "behavior": {
                        "scaleDown": {
                            "selectPolicy": "Min",
                            "policies": [{"type": "Percent", "value": 5, "periodSeconds": 30}],
                        }
                    }
                }
            },
        }
    }
    assert scaled_object(manifest).behavior == Behavior(
        DEFAULT.up, ScalingRules(300.0, [ScalingPolicy("Percent", 5, 30)], select_policy="Min")
    )
