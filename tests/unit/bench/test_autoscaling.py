"""The simulated day: the load, the line, the pods, and all of it at work; and what is read from k8s/."""

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
from bench.autoscaling.cluster import Course, Scene, simulate
from bench.autoscaling.deployment import Fleet
from bench.autoscaling.experiments import variants
from bench.autoscaling.fifo_queue import Group, Line
from bench.autoscaling.figures import figures, p99_ms
from bench.autoscaling.hpa import DEFAULT, Behaviour, Policy, Rules
from bench.autoscaling.keda import ScaledObject
from bench.autoscaling.manifests import (
    CPU_WORKERS,
    K8S,
    Autoscalers,
    Utilization,
    from_manifests,
    on_cpus,
    scaled_object,
)
from bench.autoscaling.scenarios import as_fast, of_many
from bench.autoscaling.traffic import DAY_S, HOUR_S, PEAK, Crowd, arrivals, levels
from bench.autoscaling.worker_profile import Station, measure
from bench.simulation.cluster import simulate as simulate_batches
from bench.simulation.comparison import capacity_of
from bench.simulation.setup import DEVICES, Setup
from bench.simulation.setup import Path as Way
from bench.simulation.traffic import Traffic

EVEN = Station.even(100.0, 0.02)
SCENE = Scene(EVEN, 40.0, worker_start_s=20.0)
TRIGGERS = [
    {"metadata": {"stream": f"rb:{{minilm}}:q:{lane}", "streamLength": target}}
    for lane, target in (("interactive", "7"), ("bulk", "9"))
]
NOBODY = Crowd(at_s=2 * DAY_S)


def fixed(workers: int) -> Autoscalers:
    """Returns autoscalers that change nothing."""
    return Autoscalers(ScaledObject(1e9, workers, workers), Utilization(0.7, 2, 2))


def test_the_peak_is_ten_times_the_night_and_the_crowd_comes_within_its_rise() -> None:
    """As documented, hour by hour."""
    hours = np.array([2.0, 14.5, 20.0, 20.5, 20.5 + 10 / HOUR_S, 20.5 + 20 / HOUR_S, 20.9])
    found = levels(hours * HOUR_S, Crowd())
    usual = levels(hours * HOUR_S, NOBODY)
    assert found[1] / found[0] == PEAK
    assert list(found - usual) == pytest.approx([0, 0, 0, 0, 2.5, 5, 0])


def test_arrivals_are_as_many_as_expected_and_the_same_for_a_seed() -> None:
    """To half a per cent over a day."""
    found = arrivals(40.0, Crowd(), 1)
    expected = 40.0 * levels(np.arange(DAY_S), Crowd()).sum()
    assert found.sum() == pytest.approx(expected, rel=0.005)
    assert (found == arrivals(40.0, Crowd(), 1)).all()
    assert (found != arrivals(40.0, Crowd(), 2)).any()


def test_a_line_serves_in_order_and_those_who_came_too_fast_wait() -> None:
    """Twenty within a second, before a server of ten a second: the first ten wait a quarter of a second on average."""
    line = Line()
    line.join(Group(0.0, 1.0, 20))
    ((first, waited_s),) = line.serve(0.0, 1.0, 10.0)
    assert (first.number, line.number) == (10, 10)
    assert waited_s == pytest.approx(0.25)
    line.join(Group(1.0, 1.0, 3))
    served = line.serve(1.0, 1.0, 10.0)
    assert [each.group.number for each in served] == [10]
    assert served[0].waited_s == pytest.approx(0.75)
    assert line.expire(1.0) == 0
    assert (line.expire(2.0), line.number) == (3, 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 30)), min_size=1, max_size=30))
def test_nobody_is_lost_in_a_line(steps: list[tuple[int, float]]) -> None:
    """All who joined are served or stand in it, nobody waits a negative time, and it never does more than it can."""
    line, joined, served, can = Line(), 0, 0, 0.0
    for now, (number, per_s) in enumerate(steps):
        line.join(Group(now, 1.0, number))
        found = line.serve(now, 1.0, per_s)
        joined, served, can = joined + number, served + sum(each.group.number for each in found), can + per_s
        assert all(each.waited_s >= 0 for each in found)
        assert joined == served + line.number
        assert served <= can + 1e-6


def test_pods_take_their_time_and_those_that_start_leave_first() -> None:
    """Three seconds to be ready, two to be gone; and somebody pays meanwhile."""
    fleet = Fleet(1, 3.0, 2.0)
    fleet.scale(0.0, 3)
    fleet.advance(2.9)
    assert (fleet.ready, fleet.replicas, fleet.starting) == (1, 3, 2)
    fleet.scale(2.9, 2)
    assert (fleet.ready, fleet.replicas, fleet.paid) == (1, 2, 2)
    fleet.advance(3.0)
    assert (fleet.ready, fleet.starting) == (2, 0)
    assert [fleet.ready_since(moment) for moment in (-1.0, 2.9, 3.0)] == [1, 1, 0]
    fleet.scale(3.0, 1)
    assert (fleet.ready, fleet.replicas, fleet.paid, fleet.ready_since(-1.0)) == (1, 1, 2, 0)
    fleet.advance(5.0)
    assert fleet.paid == 1


def outcome(course: Course) -> int:
    """Returns the requests whose end, or place in a line, is known."""
    return course.served + sum(course.refused) + sum(course.expired) + course.waiting


@settings(max_examples=25, deadline=None)
@given(
    st.floats(1.0, 60.0),
    st.integers(1, 5),
    st.sampled_from([5.0, 60.0]),
    st.sampled_from([1, 3, 70]),
    st.integers(1, 9),
)
def test_each_request_has_one_end(target: float, most: int, start_s: float, inputs: int, seed: int) -> None:
    """Answered, refused, expired or still waiting; replicas stay within bounds, and no more are ready than ordered."""
    scene = of_many(replace(SCENE, night_per_s=200.0, worker_start_s=start_s), inputs)
    autoscalers = Autoscalers(ScaledObject(target, 1, most), Utilization(0.7, 1, 3))
    came = np.random.default_rng(seed).poisson(scene.night_per_s, 200)
    course = simulate(scene, autoscalers, came, seed)
    assert sum(course.arrived) == came.sum() == outcome(course)
    assert all(1 <= each <= most for each in course.workers)
    assert all(
        ready <= workers <= paid for ready, workers, paid in zip(course.ready, course.workers, course.paid, strict=True)
    )
    assert all(1 <= each <= 3 for each in course.gateways)


def test_the_same_seed_gives_the_same_day() -> None:
    """Every step and every group, to the last digit."""
    came = arrivals(40.0, Crowd(600.0), 3, day_s=HOUR_S)
    autoscalers = Autoscalers(ScaledObject(16.0, 1, 8), Utilization(0.7, 2, 10))
    noisy = replace(SCENE, station=replace(EVEN, held_spread=np.full(len(EVEN.loads), 3.0)))
    assert simulate(noisy, autoscalers, came, 3) == simulate(noisy, autoscalers, came, 3)
    assert simulate(noisy, autoscalers, came, 3) != simulate(noisy, autoscalers, came, 4)


def test_a_fleet_that_keeps_up_answers_all_in_the_time_of_a_worker() -> None:
    """Two workers of 100 a second, 80 that come: 20 ms each, two worker-hours an hour."""
    course = simulate(SCENE, fixed(2), np.full(3_600, 80))
    found = figures(course, SCENE)
    assert (found.refused, found.expired, found.slow, found.changes) == (0, 0, 0, 0)
    assert found.p50_ms == pytest.approx(20, rel=0.03)
    assert found.p99_ms == pytest.approx(20, rel=0.03)
    assert found.worker_hours == pytest.approx(2)


def test_a_fleet_that_does_not_is_bounded_by_the_gateways() -> None:
    """They refuse what would not be answered in four fifths of its time: so long do the others wait, and no longer."""
    course = simulate(SCENE, fixed(1), np.full(600, 200))
    found = figures(course, SCENE)
    assert found.refused == pytest.approx(0.5, abs=0.03)
    budget_s = (GatewaySettings().request_timeout_ms + GatewaySettings().request_timeout_per_input_ms) / 1000
    assert p99_ms(course, SCENE, 60.0)[-1] == pytest.approx(0.8 * 1000 * budget_s, rel=0.15)
    assert sum(course.expired) == 0


def test_more_workers_come_when_entries_wait_and_go_when_they_do_not() -> None:
    """With 250 a second for ten minutes, a worker of 100 gets company; with none for an hour, it is alone again."""
    came = np.concatenate([np.full(600, 250), np.full(3_600, 10)])
    workers = from_manifests().workers
    course = simulate(SCENE, Autoscalers(replace(workers, target=4.0), Utilization(0.7, 2, 2)), came)
    assert course.workers[0] == 1
    assert max(course.workers[:600]) >= 3
    assert course.workers[-1] == 1
    assert outcome(course) == came.sum()


def test_gateways_are_scaled_by_their_cpu() -> None:
    """5,000 a second of 0.4 ms each need two cores, so three gateways at 70 %; and one when nobody comes for long."""
    scene = replace(SCENE, station=Station.even(20_000.0, 0.001), gateway_cpu_s=0.0004)
    autoscalers = Autoscalers(ScaledObject(1e9, 1, 1), Utilization(0.7, 1, 10))
    course = simulate(scene, autoscalers, np.concatenate([np.full(600, 5_000), np.zeros(900, dtype=int)]))
    assert course.gateways[599] == 3
    assert course.gateways[-1] == 1
    assert outcome(course) == sum(course.arrived)


def test_it_agrees_with_the_simulator_of_batches() -> None:
    """Two workers, 10 s of more than they can do between 10 s of less: p99 as batch by batch, to a tenth."""
    device, path = DEVICES["simulated"], Way(0.0, 0.0, 0.0, 0.0)
    capacity = 2 * capacity_of(device)
    rates = np.repeat([0.6, 1.3, 0.6], 10) * capacity
    came = np.random.default_rng(1).poisson(rates)
    sent = np.sort(np.concatenate([second + np.random.default_rng(second).random(n) for second, n in enumerate(came)]))
    batches = simulate_batches(Setup(device, path, workers=2), Traffic(iter(sent.tolist()), 30.0), 1)
    real = [each.answered_s - each.sent_s for each in batches.requests if each.answered_s is not None]

    scene = Scene(measure(device, path, 500), 0.0, tokens=1.0, gateway_cpu_s=1e-6)
    found = figures(simulate(scene, fixed(2), came), scene)
    assert found.p99_ms == pytest.approx(1000 * float(np.quantile(real, 0.99)), rel=0.1)
    assert found.p50_ms == pytest.approx(1000 * float(np.quantile(real, 0.5)), rel=0.5)
    assert found.refused == 0


def test_a_worker_at_more_load_holds_more_and_takes_longer() -> None:
    """At every quantile, on average of a load; in between it is between."""
    station = measure(as_fast(DEVICES["simulated"], 100.0), Way(), 500)
    assert station.inputs_per_s == pytest.approx(100.0)
    assert list(station.held) == sorted(station.held)
    assert station.holds(0.0) == (0.0, 0.0)
    assert station.holds(0.5)[0] == pytest.approx(station.held[2:4].mean())
    between = station.latencies(np.array([0.4, 0.5, 0.6, 0.99]))
    assert between[1] == pytest.approx((between[0] + between[2]) / 2)
    assert (between[3] == station.latency_s[-1]).all()


def test_the_manifests_are_read_whole() -> None:
    """What k8s/ sets is what is simulated; on CPUs with another target."""
    spec = next(yaml.safe_load_all((K8S / "components/keda/scaledobject.yaml").read_text(encoding="utf-8")))["spec"]
    found = from_manifests()
    assert (found.workers.least, found.workers.most) == (spec["minReplicaCount"], spec["maxReplicaCount"])
    assert [each["metadata"]["streamLength"] for each in spec["triggers"]] == [
        f"{each:g}" for each in (found.workers.target, found.workers.bulk_target)
    ]
    assert found.workers.fallback is not None
    assert found.workers.behaviour.down == Rules(900.0, [Policy("Pods", 1, 120.0)])
    cpu = on_cpus(found).workers
    assert cpu.target < found.workers.target
    assert cpu.bulk_target < found.workers.bulk_target
    assert replace(cpu, target=found.workers.target, bulk_target=found.workers.bulk_target) == found.workers
    assert (found.gateways.target, found.gateways.least) == (0.5, 2)


def test_both_lanes_are_read_without_a_consumer_group() -> None:
    """A consumerGroup would make it another metric; and each lane has a target of its own, whatever their order."""
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
    with pytest.raises(ValueError, match="not by the length of each lane"):
        scaled_object(manifest)
    manifest["spec"]["triggers"].pop()
    with pytest.raises(ValueError, match="not by the length of each lane"):
        scaled_object(manifest)


def test_a_patch_for_cpus_that_does_more_is_not_understood(tmp_path: Path) -> None:
    """Whatever it replaces besides would be applied, and not simulated."""
    shutil.copytree(K8S, tmp_path / "k8s")
    patch = [{"op": "replace", "path": "/spec/maxReplicaCount", "value": 4}]
    (tmp_path / "k8s" / CPU_WORKERS).write_text(yaml.safe_dump(patch), encoding="utf-8")
    with pytest.raises(ValueError, match="replace /spec/maxReplicaCount is not the target of a trigger"):
        on_cpus(from_manifests(), tmp_path / "k8s")


def test_what_a_manifest_leaves_out_is_as_its_software_has_it(tmp_path: Path) -> None:
    """KEDA polls each 30 s, between 0 and 100 replicas; Kubernetes waits five minutes before it goes down."""
    scaled = {"spec": {"triggers": TRIGGERS}, "kind": "ScaledObject"}
    cpu = {"resource": {"name": "cpu", "target": {"averageUtilization": 50}}}
    hpa = {"spec": {"maxReplicas": 3, "metrics": [cpu]}, "kind": "HorizontalPodAutoscaler"}
    for name, manifest in {"components/keda/scaledobject.yaml": scaled, "base/gateway-hpa.yaml": hpa}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(yaml.safe_dump(manifest), encoding="utf-8")
    found = from_manifests(tmp_path)
    assert found.workers == ScaledObject(7.0, 0, 100, 0.0, 30.0, 300.0, DEFAULT, None, 9.0)
    assert found.gateways == Utilization(0.5, 1, 3, DEFAULT)


def test_the_target_can_be_reached_before_gateways_refuse() -> None:
    """By entries as large as they may be, all workers' share is within what may wait: or the fleet would never grow."""
    settings_, found = GatewaySettings.model_construct(), from_manifests()
    entries = settings_.max_queue_inputs / settings_.inputs_per_entry
    for each in (found, on_cpus(found)):
        assert each.workers.target * each.workers.most < entries


def test_each_variant_differs_and_has_a_name_of_its_own() -> None:
    """No two rows of a table are called the same, and what is chosen is among the targets."""
    chosen = from_manifests()
    scenes_ = {"CPU": SCENE, "GPU": SCENE}
    found = list(variants(scenes_, {"CPU": on_cpus(chosen), "GPU": chosen}))
    names = [(each.table, each.device, each.what) for each in found]
    assert len(names) == len(set(names))
    for device in scenes_:
        targets = {each.autoscalers.workers.target for each in found if each.table == "many" and each.device == device}
        assert (on_cpus(chosen) if device == "CPU" else chosen).workers.target in targets


def test_a_day_is_told_in_spans() -> None:
    """Of five minutes each: what came in a second, what could be done, and how late it was."""
    found = report.day_of(simulate(SCENE, fixed(2), np.full(1_200, 80)), SCENE, "two", {"workers": 2})
    assert found["at_s"] == [0, 300, 600, 900]
    assert found["offered_per_s"] == [80] * 4
    assert found["capacity_per_s"] == [200] * 4
    assert found["p99_ms"] == pytest.approx([20] * 4, rel=0.03)
    assert found["workers"] == found["workers_most"] == found["gateways"] == [2] * 4


def test_of_a_span_it_says_how_few_were_ready() -> None:
    """Neither a dip within five minutes, nor a pod that only starts, is hidden behind the most or the mean."""
    course = simulate(SCENE, fixed(2), np.full(600, 80))
    course.ready[100], course.ready_gateways[400], course.workers[:] = 1, 1, [8] * 600
    found = report.day_of(course, SCENE, "two", {"workers": 8})
    assert (found["workers"], found["workers_most"]) == ([1, 2], [2, 2])
    assert (found["gateways"], found["gateways_most"]) == ([2, 1], [2, 2])
    assert found["capacity_per_s"] == [100, 200]


def test_rules_in_both_directions_are_read() -> None:
    """A behaviour that is given in one direction keeps the default in the other."""
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
    assert scaled_object(manifest).behaviour == Behaviour(
        DEFAULT.up, Rules(300.0, [Policy("Percent", 5, 30)], select="Min")
    )
