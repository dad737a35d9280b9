"""The Helm chart: it is up to date, Helm renders from it what kustomize renders, and it refuses wrong values.

Helm is its own library in Go, without a cluster. So nothing here says that an installation works.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbatch.redis_users.k8s import manifests
from redbatch.redis_users.passwords import Credentials, RedisAddress
from tests.deploy.dockerfile import ROOT
from tests.deploy.helm import Helm, RefusedError
from tests.deploy.manifests import RENDERED, Manifest, objects
from tests.servers import require_tool, skip
from tools.helm_chart import chart, value_table
from tools.helm_chart.kustomize import render_all
from tools.helm_chart.mark import identity
from tools.helm_chart.nodes import Node
from tools.helm_chart.scenarios import CONFLICTS, FLAGS, SCENARIOS, Scenario
from tools.helm_chart.values import Value

NAMESPACE = "redbatch"
TOGETHER = (
    Scenario(autoscaling="keda", tls=True, monitoring=True, ingress=True, http_route=True),
    Scenario(device="gpu-shared", autoscaling="keda", redis="sentinel", monitoring=True, ingress=True),
    Scenario(device="gpu-shared", autoscaling="keda-cpu", tls=True),
    Scenario(device="cpu", autoscaling="keda-cpu", redis="sentinel", http_route=True),
    Scenario(device="cpu", redis="cluster", monitoring=True, ingress=True),
)
"""Combinations that the chart is not made from."""
DEV_CPU = Scenario(device="cpu", autoscaling="keda-cpu", monitoring=True)
"""Flags beside values-dev-cpu.yaml."""


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values by their names with dots as Helm takes them."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = name.split(".")
        at = made
        for each in parents:
            at = at.setdefault(each, {})
        at[last] = value
    return made


def deep_update(old: dict[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Returns objects merged as by several --values of Helm."""
    both = {key for key in old if isinstance(old[key], dict) and isinstance(new.get(key), dict)}
    return {**old, **new, **{key: deep_update(old[key], new[key]) for key in both}}


@pytest.fixture(scope="module")
def helm() -> Iterator[Helm]:
    """Yields Helm, which renders the project's chart."""
    if importlib.util.find_spec("helm_python") is None:
        skip("helm-python-sdk is missing, which renders the chart: make setup installs it on Linux, for x86-64")
    with Helm(chart.CHART) as started:
        yield started


@pytest.fixture(scope="module")
def kustomized() -> list[list[Manifest]]:
    """Returns what kustomize renders: for the chart, for TOGETHER, and for DEV_CPU."""
    require_tool("kubectl", "its kustomize renders the manifests")
    together = [(each.overlay, each.components) for each in TOGETHER]
    return render_all([*chart.combinations(), *together, ("overlays/dev-cpu", DEV_CPU.components)])


def by_identity(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Returns the objects by kind and full name, without the Namespace, which is not in the chart."""
    named = {f"{each['kind']}/{each['metadata']['name']}": each for each in manifests}
    assert len(named) == len(manifests)
    return {name: each for name, each in named.items() if name not in chart.LEFT_OUT}


def parse(rendered: Iterable[str]) -> list[Manifest]:
    """Returns the objects of what templates rendered."""
    return [each for text in rendered for each in yaml.load_all(text, yaml.CSafeLoader) if each is not None]


def render(helm: Helm, values: Mapping[str, Any], namespace: str = NAMESPACE) -> dict[str, Manifest]:
    """Returns the objects that Helm renders. Raises RefusedError: Helm refuses the values."""
    return by_identity(parse(helm.render(values, namespace).values()))


def differences(helm: Helm, values: Mapping[str, Any], expected: list[Manifest]) -> dict[str, Any]:
    """Returns the objects that differ, or that only one of the two has: what Helm renders, and what it should."""
    rendered, wanted = render(helm, values), by_identity(expected)
    return {
        name: (rendered.get(name), wanted.get(name))
        for name in rendered.keys() | wanted.keys()
        if rendered.get(name) != wanted.get(name)
    }


def preset() -> dict[str, Any]:
    """Returns the values of values-dev-cpu.yaml."""
    values: dict[str, Any] = yaml.safe_load((chart.CHART / "values-dev-cpu.yaml").read_text(encoding="utf-8"))
    return values


def test_the_chart_is_up_to_date(kustomized: list[list[Manifest]]) -> None:
    """The checked-in files are those that `make chart` writes, which is from k8s/redbatch.yaml among others."""
    assert chart.files(kustomized[: len(SCENARIOS) + 1]) == chart.current(), "make chart"
    assert by_identity(kustomized[0]) == by_identity(objects(RENDERED.read_text(encoding="utf-8")))


def test_helm_renders_what_kustomize_renders(helm: Helm, kustomized: list[list[Manifest]]) -> None:
    """Object by object: the defaults, each overlay and component, those that change each other, and many together."""
    values: list[dict[str, Any]] = [{}, *(nested(each.values) for each in SCENARIOS[1:]), preset()]
    values += [nested(each.values) for each in TOGETHER]
    values.append(deep_update(nested(DEV_CPU.values), preset()))
    found = {str(each): differences(helm, each, expected) for each, expected in zip(values, kustomized, strict=True)}
    assert {name: each for name, each in found.items() if each} == {}
    assert len(values) == len(SCENARIOS) + len(TOGETHER) + 2


def test_a_difference_is_found(helm: Helm) -> None:
    """The comparison sees one value, and an object that is missing."""
    expected = objects(RENDERED.read_text(encoding="utf-8"))
    assert differences(helm, {}, expected) == {}
    assert [*differences(helm, nested({"gateway.autoscaling.maxReplicas": 11}), expected)] == [
        "HorizontalPodAutoscaler/gateway"
    ]
    assert [*differences(helm, {}, expected[:-1])] == [identity(expected[-1])]


def test_helm_finds_no_fault_in_the_chart(helm: Helm) -> None:
    """`helm lint --strict` has nothing to say but that it would like an icon."""
    report = helm.lint(NAMESPACE)
    assert (report["errors"], [each["error"] for each in report["messages"]]) == ([], ["icon is recommended"])


OTHERS: Mapping[str, Any] = {"string": "7other", "integer": 17, "array": [{"name": "other"}], "object": {"OTHER": "7"}}
"""By type of a schema: a value that is no default."""


def contains(node: Node, value: Node) -> bool:
    """Whether a value of a user is somewhere in an object: as it is, as part of a text, or among other fields."""
    if isinstance(node, str):
        return str(value) in node
    if isinstance(node, dict):
        among = isinstance(value, dict) and value.items() <= node.items()
        return among or any(contains(each, value) for each in node.values())
    return node == value or (isinstance(node, list) and any(contains(each, value) for each in node))


@pytest.mark.parametrize("value", value_table.VALUES, ids=lambda value: value.name)
def test_each_value_is_in_the_objects(helm: Helm, value: Value) -> None:
    """No value is without effect: what a user gives is in objects that it changes."""
    flags: dict[str, Any] = {"monitoring.enabled": True, "ingress.enabled": True, "httpRoute.enabled": True}
    if value.name == "redis.cluster.shards":
        flags["redis.mode"] = "cluster"
    elif value.name != "worker.replicas":
        flags["worker.autoscaling.type"] = "keda"
    other = {"limits": {"cpu": "7"}} if value.schema is value_table.RESOURCES else OTHERS[value.schema["type"]]
    before, after = (helm.render(nested(flags | more), NAMESPACE) for more in ({}, {value.name: other}))
    changed = parse(text for name, text in after.items() if before[name] != text)
    wanted = {"cpu": "7"} if value.schema is value_table.RESOURCES else other
    assert any(contains(each, wanted) for each in changed)


def test_a_changed_setting_changes_the_name_of_its_configmap(helm: Helm) -> None:
    """And so the pods of its Deployment: they refer to it by the new name."""
    values = nested({"worker.settings": {"REDBATCH_MAX_BATCH_SIZE": "128"}})
    before, after = render(helm, {}), render(helm, values)
    (old,), (new,) = ([name for name in each if name.startswith("ConfigMap/worker-")] for each in (before, after))
    assert old != new
    assert after[new]["data"] == before[old]["data"] | {"REDBATCH_MAX_BATCH_SIZE": "128"}
    (container,) = after["Deployment/worker"]["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"configMapRef": {"name": new.partition("/")[2]}}]


def test_another_namespace_is_everywhere(helm: Helm) -> None:
    """Also in addresses, certificates and alerts, where an overlay of kustomize needs patches."""
    for each in (TOGETHER[0], TOGETHER[1]):
        rendered = render(helm, nested(each.values), "prod")
        assert {manifest["metadata"]["namespace"] for manifest in rendered.values()} == {"prod"}
        text = yaml.safe_dump([*rendered.values()])
        assert ".redbatch.svc" not in text
        assert 'namespace="redbatch"' not in text
        assert ".prod.svc" in text


def test_the_namespace_comes_with_the_secrets() -> None:
    """The one object that is not in the chart is in the output of `redbatch k8s secrets`, with the same labels."""
    passwords = dict.fromkeys(("gateway", "worker", "keda", "ops", "admin"), "password")
    made, *_ = objects(manifests(NAMESPACE, Credentials("", passwords), RedisAddress("redis", 6379, tls=False)))
    assert made == yaml.safe_load((ROOT / "k8s/base/namespace.yaml").read_text(encoding="utf-8"))
    assert (identity(made),) == chart.LEFT_OUT


REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "a misspelt value": ({"gateway": {"imag": {}}}, "at '/gateway': additional properties 'imag' not allowed"),
    "a misspelt setting": (
        {"worker": {"settings": {"REDBATCH_MAX_BATHC_SIZE": "8"}}},
        "at '/worker/settings': additional properties 'REDBATCH_MAX_BATHC_SIZE' not allowed",
    ),
    "a setting of the other process": (
        {"worker": {"settings": {"REDBATCH_AUTH": "on"}}},
        "at '/worker/settings': additional properties 'REDBATCH_AUTH' not allowed",
    ),
    "a password in a ConfigMap": (
        {"gateway": {"settings": {"REDBATCH_REDIS_URL": "redis://:secret@redis"}}},
        "at '/gateway/settings': additional properties 'REDBATCH_REDIS_URL' not allowed",
    ),
    "a number for a text": (
        {"worker": {"settings": {"REDBATCH_MAX_BATCH_SIZE": 8}}},
        "at '/worker/settings/REDBATCH_MAX_BATCH_SIZE': got number, want string",
    ),
    "a text for a number": (
        {"gateway": {"autoscaling": {"maxReplicas": "many"}}},
        "at '/gateway/autoscaling/maxReplicas': got string, want integer",
    ),
    "an unknown device": (
        {"worker": {"device": "tpu"}},
        "at '/worker/device': value must be one of 'gpu', 'gpu-shared', 'cpu'",
    ),
    "a value that is required": ({"queue": None}, "at '': missing property 'queue'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_values_are_refused(helm: Helm, name: str) -> None:
    """The schema refuses them with a line that names the value and what is wrong."""
    values, message = REFUSED[name]
    with pytest.raises(RefusedError) as raised:
        render(helm, values)
    assert message in str(raised.value)


def conflicting() -> Iterator[tuple[dict[str, Any], str]]:
    """Yields values that k8s/ has no objects for, with the message: one for each of CONFLICTS."""
    values: list[dict[str, Any]] = [
        {"redis.tls": True, "redis.mode": "sentinel"},
        {"redis.tls": True, "redis.mode": "cluster"},
        {"worker.autoscaling.type": "keda", "redis.mode": "cluster"},
        {"worker.autoscaling.type": "keda", "worker.replicas": 2},
    ]
    for each, conflict in zip(values, CONFLICTS, strict=True):
        yield nested(each), conflict.message


def test_combinations_that_kustomize_does_not_have_are_refused(helm: Helm) -> None:
    """Each with its message."""
    for values, message in conflicting():
        with pytest.raises(RefusedError) as raised:
            render(helm, values)
        assert message in str(raised.value)


def test_settings_of_other_programs_are_allowed(helm: Helm) -> None:
    """Such as those of OpenTelemetry: only names that begin with REDBATCH_ are checked."""
    rendered = render(helm, nested({"gateway.settings": {"OTEL_SERVICE_NAME": "edge"}}))
    (data,) = (each["data"] for name, each in rendered.items() if name.startswith("ConfigMap/gateway-"))
    assert data["OTEL_SERVICE_NAME"] == "edge"


def test_each_flag_chooses_something_of_kustomize() -> None:
    """Each choice of a flag is in a scenario, and each overlay and component of k8s/ belongs to one."""
    for field, flag in FLAGS.items():
        assert {getattr(each, field) for each in SCENARIOS} == set(flag.choices or (False, True))
    used = {name for each in SCENARIOS for name in each.components}
    folders = {path.parent for path in (ROOT / "k8s/components").rglob("kustomization.yaml")}
    names = {str(Path(each).relative_to(ROOT / "k8s/components")) for each in folders}
    assert names - {"gpu"} == used
