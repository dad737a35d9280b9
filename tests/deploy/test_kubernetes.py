"""The manifests for Kubernetes: what is committed is what kustomize makes, and nothing is wrong with any of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.faults import faults
from tests.deploy.manifests import (
    COMPONENTS,
    K8S,
    OVERLAYS,
    RENDERED,
    Manifest,
    compose,
    containers,
    kustomize_is_missing,
    named,
    objects,
    of_kind,
    pod_of,
    render,
)

with_kustomize = pytest.mark.skipif(bool(kustomize_is_missing()), reason=kustomize_is_missing() or "it is there")


@pytest.fixture(scope="module")
def rendered() -> list[Manifest]:
    """The manifests that are committed."""
    return objects(RENDERED.read_text(encoding="utf-8"))


@with_kustomize
def test_what_is_committed_is_what_is_rendered() -> None:
    """`make manifests` writes it; and nothing else is where `kubectl apply -f k8s/` looks."""
    text = RENDERED.read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    assert (first[0], rest) == ("#", render(K8S / "overlays" / "gpu")), "make manifests"
    assert [path for path in K8S.iterdir() if path.is_file()] == [RENDERED]


def test_nothing_is_wrong_with_what_is_committed(rendered: list[Manifest]) -> None:
    """By schemas and by sense; and a cluster without others' custom resources takes it."""
    assert faults(rendered) == []
    assert len(rendered) > 15
    assert {each["apiVersion"] for each in rendered} == {
        "v1", "apps/v1", "policy/v1", "autoscaling/v2", "networking.k8s.io/v1",
    }  # fmt: skip


@with_kustomize
@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("components", [(), *((each,) for each in COMPONENTS), COMPONENTS], ids=" ".join)
def test_nothing_is_wrong_with_what_can_be_made(overlay: str, components: tuple[str, ...], tmp_path: Path) -> None:
    """Each overlay, with each component and with all of them."""
    assert faults(objects(compose(overlay, components, tmp_path))) == []


@with_kustomize
def test_workers_go_where_their_device_is() -> None:
    """To nodes with GPUs, by either label, and to no other; without GPUs anywhere, and the image is another."""
    made = {overlay: objects(render(K8S / "overlays" / overlay)) for overlay in OVERLAYS}
    pods = {overlay: pod_of(named(found, "Deployment", "worker")) for overlay, found in made.items()}
    limits = {overlay: next(containers(pod))["resources"]["limits"] for overlay, pod in pods.items()}
    images = {overlay: next(containers(pod))["image"] for overlay, pod in pods.items()}
    assert {key: value for key, value in limits["gpu"].items() if "nvidia" in key} == {"nvidia.com/gpu": 1}
    assert {key: value for key, value in limits["gpu-shared"].items() if "nvidia" in key} == {
        "nvidia.com/gpu.shared": 1
    }
    assert not [key for key in limits["dev-cpu"] if "nvidia" in key]
    assert images["gpu"] == images["gpu-shared"] == images["dev-cpu"].removesuffix("-cpu")
    assert "affinity" not in pods["dev-cpu"]
    for overlay in ("gpu", "gpu-shared"):
        wanted = pods[overlay]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms = [term["matchExpressions"] for term in wanted["nodeSelectorTerms"]]
        assert terms == [
            [{"key": key, "operator": "In", "values": ["true"]}] for key in ("nvidia.com/gpu.present", "gpu")
        ]
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pods[overlay]["tolerations"]


def test_nothing_secret_is_committed(rendered: list[Manifest]) -> None:
    """No Secret, in the rendered file or in what it is made of."""
    assert of_kind(rendered, "Secret") == []
    for path in K8S.rglob("*.yaml"):
        assert "\nkind: Secret" not in f"\n{path.read_text(encoding='utf-8')}", path
        assert "secretGenerator" not in path.read_text(encoding="utf-8"), path


def test_redis_has_the_file_that_was_tried() -> None:
    """The one that tests/deploy/test_swarm.py starts a Redis with."""
    assert (K8S / "base" / "redis.conf").read_bytes() == (K8S.parent / "swarm" / "redis.conf").read_bytes()


Change = Callable[[list[Manifest]], object]


def worker(manifests: list[Manifest]) -> Any:  # noqa: ANN401 - a tree of YAML
    """Returns the container of a worker."""
    return pod_of(named(manifests, "Deployment", "worker"))["containers"][0]


def gateway(manifests: list[Manifest]) -> Any:  # noqa: ANN401 - a tree of YAML
    """Returns the container of a gateway."""
    return pod_of(named(manifests, "Deployment", "gateway"))["containers"][0]


MUTATIONS: dict[str, tuple[Change, str]] = {
    "a field that there is not": (
        lambda all_: gateway(all_).update(imagePullPolicies="Always"),
        "Kubernetes 1.30 refuses spec.template.spec.containers.0",
    ),
    "a quantity that is none": (lambda all_: worker(all_)["resources"]["requests"].update(cpu="banana"), "cpu: banana"),
    "root": (
        lambda all_: pod_of(named(all_, "Deployment", "gateway"))["securityContext"].pop("runAsNonRoot"),
        "Deployment gateway: container gateway: may run as root",
    ),
    "rights kept": (lambda all_: worker(all_).pop("securityContext"), "container worker: keeps capabilities"),
    "a probe of a port that there is not": (
        lambda all_: gateway(all_)["readinessProbe"]["httpGet"].update(port="metrics"),
        "readinessProbe asks port metrics",
    ),
    "a variable that is no setting": (
        lambda all_: worker(all_)["env"].append({"name": "REDBATCH_BATCH_SIZE", "value": "64"}),
        "REDBATCH_BATCH_SIZE is no setting",
    ),
    "a value that no setting takes": (
        lambda all_: worker(all_)["env"].append({"name": "REDBATCH_MAX_BATCH_SIZE", "value": "0"}),
        "max_batch_size: Input should be greater",
    ),
    "a selector that selects nobody": (
        lambda all_: named(all_, "Service", "gateway")["spec"]["selector"].update(app="gateways"),
        "Service gateway: selects no pod",
    ),
    "a grace that is too short": (
        lambda all_: pod_of(named(all_, "Deployment", "worker")).update(terminationGracePeriodSeconds=30),
        "Deployment worker: a grace of 30 s",
    ),
    "the latest image": (
        lambda all_: worker(all_).update(image="redbatch-worker:latest"),
        "redbatch-worker:latest has no version",
    ),
    "no limit on memory": (lambda all_: worker(all_)["resources"]["limits"].pop("memory"), "no limit on memory"),
    "a way that is closed": (
        lambda all_: named(all_, "NetworkPolicy", "redis")["spec"]["ingress"][0]["ports"][0].update(port=6380),
        "closed, and needed: Way(source='gateway', target='redis', port=6379, protocol='TCP')",
    ),
    "a way that is open": (
        lambda all_: all_.remove(named(all_, "NetworkPolicy", "default-deny")),
        "nothing is denied by default to worker",
    ),
    "a Secret that nobody makes": (
        lambda all_: pod_of(named(all_, "Deployment", "gateway"))["volumes"][1]["secret"].update(secretName="redis"),
        "Deployment gateway: there is no Secret redis",
    ),
    "a rollout that waits for a second GPU": (
        lambda all_: named(all_, "Deployment", "worker")["spec"]["strategy"]["rollingUpdate"].update(maxSurge=1),
        "maxSurge and maxUnavailable are not 0 and 1",
    ),
    "root again, in a container": (
        lambda all_: worker(all_)["securityContext"].update(runAsNonRoot=False, runAsUser=0),
        "container worker: may run as root",
    ),
    "a namespace without a standard": (
        lambda all_: named(all_, "Namespace", "redbatch")["metadata"].pop("labels"),
        "Namespace redbatch: does not enforce",
    ),
    "a path that there is not": (
        lambda all_: gateway(all_)["readinessProbe"]["httpGet"].update(path="/healthz"),
        "readinessProbe asks for /healthz",
    ),
    "a liveness that depends on Redis": (
        lambda all_: worker(all_)["livenessProbe"]["httpGet"].update(path="/readyz"),
        "livenessProbe asks for /readyz",
    ),
    "a part that never is missing": (
        lambda all_: gateway(all_)["readinessProbe"]["httpGet"].update(path="/readyz?exclude=workers"),
        "excludes ['workers']",
    ),
    "a port that nobody listens on": (
        lambda all_: gateway(all_)["ports"][1].update(containerPort=9099),
        "its ports are {'admin': 9090, 'http': 8080}",
    ),
    "a Service on another port": (
        lambda all_: named(all_, "Service", "redis")["spec"]["ports"][0].update(port=6380),
        "Redis is to be at redis:6379",
    ),
    "a file that no secret has": (
        lambda all_: worker(all_)["env"][0].update(value="/run/secrets/redis/uri"),
        "there is no /run/secrets/redis/uri",
    ),
    "no way to Redis": (lambda all_: gateway(all_)["env"].clear(), "gateway is not told where Redis is"),
    "DNS over TCP alone": (
        lambda all_: named(all_, "NetworkPolicy", "dns")["spec"]["egress"][0]["ports"].pop(0),
        "port=53, protocol='UDP'",
    ),
    "more asked for than there may be": (
        lambda all_: gateway(all_)["resources"]["requests"].update(memory="2Gi"),
        "asks for more memory than its limit",
    ),
    "too much for Redis": (
        lambda all_: pod_of(named(all_, "StatefulSet", "redis"))["containers"][0].update(
            args=["--maxmemory", "8000mb"]
        ),
        "a maxmemory of 8000 MiB",
    ),
    "no time to leave the proxies": (lambda all_: gateway(all_).pop("lifecycle"), "Deployment gateway: no preStop"),
    "an object elsewhere": (
        lambda all_: named(all_, "Service", "gateway")["metadata"].update(namespace="default"),
        "Service gateway: not in redbatch",
    ),
    "fewer at most than at least": (
        lambda all_: named(all_, "HorizontalPodAutoscaler", "gateway")["spec"].update(minReplicas=20),
        "20 to 10 replicas",
    ),
    "an empty file": (lambda all_: all_.clear(), "there is nothing in it"),
}


def scaled(manifests: list[Manifest]) -> Any:  # noqa: ANN401 - a tree of YAML
    """Returns the spec of the ScaledObject."""
    return named(manifests, "ScaledObject", "worker")["spec"]


OF_COMPONENTS: dict[str, tuple[Change, str]] = {
    "a field that KEDA does not know": (
        lambda all_: scaled(all_).update(maxReplicas=4),
        "ScaledObject worker: spec: Additional properties are not allowed",
    ),
    "a key that KEDA passes over": (
        lambda all_: scaled(all_)["triggers"][0]["metadata"].update(streamLenght="32"),
        "is not by the length of a stream",
    ),
    "a consumer group": (
        lambda all_: scaled(all_)["triggers"][0]["metadata"].update(consumerGroup="workers"),
        "is not by the length of a stream",
    ),
    "another queue": (
        lambda all_: scaled(all_)["triggers"][0]["metadata"].update(stream="rb:{mpnet}:q:interactive"),
        "its streams are not the lanes of minilm",
    ),
    "a quick end": (
        lambda all_: scaled(all_)["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"].update(
            stabilizationWindowSeconds=0
        ),
        "workers are taken away at once",
    ),
    "KEDA in the clear": (
        lambda all_: named(all_, "TriggerAuthentication", "redis")["spec"]["secretTargetRef"].pop(2),
        "it does not speak TLS",
    ),
    "a key that the secret has not": (
        lambda all_: named(all_, "TriggerAuthentication", "redis")["spec"]["secretTargetRef"][0].update(key="user"),
        "the secret keda-redis has no user",
    ),
    "an issuer that there is not": (
        lambda all_: named(all_, "Certificate", "redis")["spec"]["issuerRef"].update(name="ca"),
        "Certificate redis: there is no Issuer ca",
    ),
    "a certificate for another name": (
        lambda all_: named(all_, "Certificate", "redis")["spec"].update(dnsNames=["redis.example.com"]),
        "Redis' certificate is not for",
    ),
    "metrics that are elsewhere": (
        lambda all_: named(all_, "PodMonitor", "worker")["spec"]["podMetricsEndpoints"][0].update(path="/metric"),
        "PodMonitor worker: metrics are not at /metric",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_broken_is_noticed(rendered: list[Manifest], name: str) -> None:
    """Each deliberate fault, by the check that is for it."""
    notice(rendered, *MUTATIONS[name])


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """The overlay with all components."""
    if kustomize_is_missing():
        pytest.skip(kustomize_is_missing())
    return objects(compose("gpu", COMPONENTS, tmp_path_factory.mktemp("everything")))


@pytest.mark.parametrize("name", OF_COMPONENTS)
def test_what_is_broken_in_a_component_is_noticed(everything: list[Manifest], name: str) -> None:
    """The same of custom resources."""
    notice(everything, *OF_COMPONENTS[name])


def notice(manifests: list[Manifest], change: Change, told: str) -> None:
    """Has a change be noticed."""
    broken = copy.deepcopy(manifests)
    change(broken)
    assert any(told in line for line in faults(broken)), faults(broken)
