"""The component for KEDA, for workers on GPUs and on CPUs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.autoscaling.manifests import from_manifests, on_cpus, scaled_object
from shared.keys import Keys
from shared.model_names import DEFAULT_MODEL, queue_slug
from tests.deploy.checks import find_faults
from tests.deploy.custom_resources import violations
from tests.deploy.dockerfile import ROOT
from tests.deploy.manifests import compose, named, objects, render
from tests.deploy.promtool import promtool

PAGE = ROOT / "docs" / "autoscaling.md"


def spec(component: str, folder: Path) -> dict[str, Any]:
    """Returns the spec of the workers' ScaledObject with a component. Raises AssertionError: there are faults."""
    manifests = objects(compose("gpu", [component], folder))
    assert find_faults(manifests) == []
    return dict(named(manifests, "ScaledObject", "worker")["spec"])


@pytest.mark.parametrize("component", ["keda", "keda-cpu"])
def test_the_simulator_reads_the_applied_manifests(component: str, tmp_path: Path) -> None:
    """The rendered ScaledObject equals the one that the autoscaling simulator reads."""
    found = spec(component, tmp_path)
    chosen = from_manifests()
    expected = on_cpus(chosen) if component == "keda-cpu" else chosen
    assert scaled_object({"spec": found}) == expected.workers


@pytest.mark.parametrize("component", ["keda", "keda-cpu"])
def test_requests_that_share_entries_hide_no_need_for_workers(component: str, tmp_path: Path) -> None:
    """Up to the length at which the lane asks for as many workers as one step adds, each request has an entry."""
    manifests = objects(compose("gpu", [component], tmp_path))
    [container] = named(manifests, "Deployment", "gateway")["spec"]["template"]["spec"]["containers"]
    [minimum] = [each["value"] for each in container["env"] if each["name"] == "REDBATCH_MIN_ENTRIES_PER_WORKER"]
    scaled = named(manifests, "ScaledObject", "worker")["spec"]
    target = int(scaled["triggers"][0]["metadata"]["streamLength"])
    policies = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleUp"]["policies"]
    steps = {each["type"]: each["value"] for each in policies}
    largest_step = max(1 + steps["Percent"] / 100, 1 + steps["Pods"])
    assert int(minimum) == target * largest_step


def test_the_patch_for_two_redis(tmp_path: Path) -> None:
    """That of docs/autoscaling.md: a trigger for each Redis and lane, whose targets add up to those of one Redis."""
    one = {each["metadata"]["stream"]: each["metadata"] for each in spec("keda", tmp_path)["triggers"]}
    [patches] = re.findall(r"```yaml\n(patches:\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    kustomization = tmp_path / "kustomization.yaml"
    kustomization.write_text(kustomization.read_text(encoding="utf-8") + patches, encoding="utf-8")
    manifests = objects(render(tmp_path))
    scaled = named(manifests, "ScaledObject", "worker")
    assert violations(scaled) == []
    triggers = scaled["spec"]["triggers"]
    assert len({each["name"] for each in triggers}) == len(triggers) == 4
    by_stream: dict[str, set[str]] = {}
    for each in triggers:
        metadata = each["metadata"]
        by_stream.setdefault(metadata["stream"], set()).add(metadata["address"])
        assert 2 * int(metadata["streamLength"]) == int(one[metadata["stream"]]["streamLength"])
    assert {stream: len(addresses) for stream, addresses in by_stream.items()} == dict.fromkeys(one, 2)


def test_the_query_for_several_redis(tmp_path: Path) -> None:
    """That of docs/autoscaling.md: the entries of one lane on all Redis, which each of two gateways reports."""
    [query] = re.findall(r"```promql\n(.*?)\n```", PAGE.read_text(encoding="utf-8"))
    of_lane = 'namespace="redbatch", queue="minilm", lane="interactive"'
    entries = {f'{of_lane}, pod="a"': 90, f'{of_lane}, pod="b"': 100}
    entries |= {of_lane.replace(old, new): 500 for old, new in (("interactive", "bulk"), ("minilm", "e5"))}
    entries |= {of_lane.replace('namespace="redbatch"', 'namespace="other"'): 500}
    series = [
        {"series": f"redbatch_queue_entries{{{labels}}}", "values": str(value)} for labels, value in entries.items()
    ]
    expected = {"expr": query, "eval_time": "0m", "exp_samples": [{"labels": "{}", "value": 100}]}
    tests = tmp_path / "tests.yml"
    tests.write_text(yaml.safe_dump({"tests": [{"input_series": series, "promql_expr_test": [expected]}]}), "utf-8")
    assert "SUCCESS" in promtool("test", "rules", tests)


def test_it_reads_the_lanes_of_the_default_queue(tmp_path: Path) -> None:
    """The triggers read both lanes under their Redis keys."""
    keys = Keys(queue_slug(DEFAULT_MODEL))
    streams = [each["metadata"]["stream"] for each in spec("keda", tmp_path)["triggers"]]
    assert streams == keys.lanes
