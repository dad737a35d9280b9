"""The manifests for Kubernetes: the committed file is up to date, and no overlay with any component has faults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deploy import checks
from tests.deploy.checks import find_faults, schemas, security
from tests.deploy.checks.resources import gpu_of
from tests.deploy.dockerfile import ROOT
from tests.deploy.manifests import (
    COMPONENTS,
    K8S,
    OVERLAYS,
    RENDERED,
    Manifest,
    compose,
    config_of,
    containers,
    label,
    named,
    objects,
    of_kind,
    pod_of,
    relative_path,
    render,
)
from tests.deploy.mutations import COMPONENTS as COMPONENTS_SECTION
from tests.deploy.mutations import MUTATIONS, OF_BASE, REDIS_CLUSTER, SHARED_GPUS, Mutation
from tests.deploy.mutations import SENTINELS as SENTINELS_SECTION

OPTIONAL = [each for each in COMPONENTS if each != "gpu"]
"""Components that no overlay includes."""

TOGETHER = [each for each in OPTIONAL if each not in ("keda-cpu", "redis-sentinel", "redis-cluster")]
"""keda-cpu is `keda` with other numbers, redis-sentinel has no TLS, and redis-cluster has no Redis."""

SENTINELS = [[each, "redis-sentinel"] for each in ("keda", "keda-cpu")]
BESIDE_REDIS_CLUSTER = ["ingress", "monitoring", "redis-cluster"]


@pytest.fixture(scope="module")
def rendered() -> list[Manifest]:
    """Returns the committed manifests."""
    return objects(RENDERED.read_text(encoding="utf-8"))


def test_the_committed_manifests_are_up_to_date() -> None:
    """The committed file is what `make manifests` writes, and `kubectl apply -f k8s/` finds no other file."""
    text = RENDERED.read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    assert (first[0], rest) == ("#", render(K8S / "overlays" / "gpu")), "make manifests"
    assert [path for path in K8S.iterdir() if path.is_file()] == [RENDERED]


def test_the_committed_manifests_have_no_faults(rendered: list[Manifest]) -> None:
    """The committed manifests pass all checks, and need no custom resources in the cluster."""
    assert find_faults(rendered) == []
    assert len(rendered) > 15
    assert {each["apiVersion"] for each in rendered} == {
        "v1", "apps/v1", "policy/v1", "autoscaling/v2", "networking.k8s.io/v1",
    }  # fmt: skip


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize(
    "components",
    [[], *([each] for each in OPTIONAL), *SENTINELS, BESIDE_REDIS_CLUSTER, TOGETHER],
    ids=" ".join,
)
def test_no_overlay_with_components_has_faults(overlay: str, components: list[str], tmp_path: Path) -> None:
    """Each overlay passes all checks without components, with each one, and with all of them."""
    assert find_faults(objects(compose(overlay, components, tmp_path))) == []


def test_each_overlay_is_for_a_device_and_requires_keys() -> None:
    """The overlays use a GPU, a share of one, or none; only the one for laptops requires no API key."""
    made = {overlay: objects(render(K8S / "overlays" / overlay)) for overlay in OVERLAYS}
    assert {overlay: gpu_of(named(found, "Deployment", "worker")) for overlay, found in made.items()} == {
        "dev-cpu": "", "gpu": "nvidia.com/gpu", "gpu-shared": "nvidia.com/gpu.shared",
    }  # fmt: skip
    gateways = {
        overlay: next(containers(pod_of(named(each, "Deployment", "gateway")))) for overlay, each in made.items()
    }
    assert {overlay: config_of(made[overlay], gateways[overlay])["REDBATCH_AUTH"] for overlay in OVERLAYS} == {
        overlay: "off" if overlay == "dev-cpu" else "on" for overlay in OVERLAYS
    }


def test_no_secret_is_committed(rendered: list[Manifest]) -> None:
    """There is no Secret and no secretGenerator in the rendered file or in its sources."""
    assert of_kind(rendered, "Secret") == []
    for path in K8S.rglob("*.yaml"):
        assert "\nkind: Secret" not in f"\n{path.read_text(encoding='utf-8')}", path
        assert "secretGenerator" not in path.read_text(encoding="utf-8"), path


def test_redis_uses_the_tested_configuration() -> None:
    """The file equals the one with which tests/deploy/test_swarm_redis.py starts a Redis."""
    assert (K8S / "base" / "redis.conf").read_bytes() == (K8S.parent / "swarm" / "redis.conf").read_bytes()


@pytest.mark.parametrize(("check", "mutation"), OF_BASE, ids=str)
def test_each_deliberate_fault_is_found_by_its_check(rendered: list[Manifest], check: str, mutation: Mutation) -> None:
    """The check that lists a mutation finds it; the schemas find those in their own section and no others."""
    mutated = mutation.apply(rendered)
    violations = schemas.violations(mutated)
    lines = violations if check == "schemas" else [*getattr(checks, check).check(mutated)]
    assert (mutation.is_found(lines), violations == []) == (True, check != "schemas"), lines


def test_each_check_has_ten_deliberate_find_faults() -> None:
    """Each check has at least ten mutations, so that a check that finds nothing fails the tests."""
    sections = {each.__name__.rpartition(".")[2] for each in (*checks.CHECKS, schemas)}
    assert {name for name, section in MUTATIONS.items() if len(section) >= 10} >= sections


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """Returns an overlay with all components."""
    made = objects(compose("gpu", TOGETHER, tmp_path_factory.mktemp("everything")))
    assert {each["kind"] for each in made} > {"ScaledObject", "PodMonitor", "PrometheusRule", "Ingress", "HTTPRoute"}
    return made


@pytest.mark.parametrize("mutation", MUTATIONS[COMPONENTS_SECTION], ids=str)
def test_each_deliberate_fault_in_a_component_is_found(everything: list[Manifest], mutation: Mutation) -> None:
    """The checks find mutations of custom resources, TLS, and the proxies in front of the gateways."""
    lines = find_faults(mutation.apply(everything))
    assert mutation.is_found(lines), lines


@pytest.fixture(scope="module")
def with_sentinels(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """Returns an overlay with three Redis and their sentinels."""
    return objects(compose("gpu", SENTINELS[0], tmp_path_factory.mktemp("sentinels")))


@pytest.mark.parametrize("mutation", MUTATIONS[SENTINELS_SECTION], ids=str)
def test_each_deliberate_fault_beside_sentinels_is_found(with_sentinels: list[Manifest], mutation: Mutation) -> None:
    """The checks find mutations of what the component changes."""
    lines = find_faults(mutation.apply(with_sentinels))
    assert mutation.is_found(lines), lines


@pytest.fixture(scope="module")
def on_redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """Returns an overlay with a Redis Cluster elsewhere."""
    return objects(compose("gpu", BESIDE_REDIS_CLUSTER, tmp_path_factory.mktemp("cluster")))


@pytest.mark.parametrize("mutation", MUTATIONS[REDIS_CLUSTER], ids=str)
def test_each_deliberate_fault_with_a_redis_cluster_is_found(
    on_redis_cluster: list[Manifest], mutation: Mutation
) -> None:
    """The checks find mutations of what the component changes."""
    lines = find_faults(mutation.apply(on_redis_cluster))
    assert mutation.is_found(lines), lines


@pytest.mark.parametrize("component", ["keda", "keda-cpu", "tls"])
def test_what_needs_a_redis_of_its_own_is_found_beside_a_redis_cluster(component: str, tmp_path: Path) -> None:
    """Those are the combinations that docs/redis.md excludes."""
    faults = find_faults(objects(compose("gpu", [component, "redis-cluster"], tmp_path)))
    assert any("it is of a Redis of these manifests" in each for each in faults)


@pytest.fixture(scope="module")
def shared() -> list[Manifest]:
    """Returns the overlay in which workers share a GPU."""
    return objects(render(K8S / "overlays" / "gpu-shared"))


@pytest.mark.parametrize("mutation", MUTATIONS[SHARED_GPUS], ids=str)
def test_each_deliberate_fault_of_shared_gpus_is_found(shared: list[Manifest], mutation: Mutation) -> None:
    """A worker without a lease, or with the lease of another node, would use a GPU that another worker holds."""
    lines = find_faults(mutation.apply(shared))
    assert mutation.is_found(lines), lines


def test_a_missing_or_duplicate_object_is_found(rendered: list[Manifest]) -> None:
    """The checks find each object that is duplicated or removed: all of them are necessary."""
    assert "there are no manifests" in find_faults([])
    for index, each in enumerate(rendered):
        assert f"{label(each)}: it occurs twice" in find_faults([*rendered, each])
        assert find_faults([*rendered[:index], *rendered[index + 1 :]]), label(each)


def page(heading: str, name: str) -> str:
    """Returns the section of a document under a heading."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    return re.split(r"^##+ ", re.split(rf"\n###? {heading}\n", text)[1], maxsplit=1, flags=re.MULTILINE)[0]


def kustomization(heading: str, folder: Path, name: str = "deploy.md") -> Path:
    """Writes the kustomization under a heading into a folder, with paths to k8s/; returns the folder."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page(heading, name), re.MULTILINE | re.DOTALL)
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(
        text.replace("redbatch/k8s", relative_path(".", folder)), encoding="utf-8"
    )
    return folder


def test_the_documented_overlay_has_no_faults(tmp_path: Path) -> None:
    """The overlay of a user in docs/deploy.md passes all checks."""
    assert find_faults(objects(render(kustomization("Your own overlay", tmp_path / "own")))) == []


def test_the_documented_overlay_of_a_function_has_no_faults(tmp_path: Path) -> None:
    """The image with the class, and the queue of its model at the gateways."""
    heading = "Into an image, and onto a cluster"
    made = objects(render(kustomization(heading, tmp_path / "own", "functions.md")))
    assert find_faults(made) == []
    configs = {
        name: config_of(made, pod_of(named(made, "Deployment", name))["containers"][0])
        for name in ("gateway", "worker")
    }
    assert configs["gateway"]["REDBATCH_QUEUE"] == "squares-squares"
    assert configs["worker"]["REDBATCH_MAX_BATCH_SIZE"] == "1000"


@pytest.mark.parametrize("components", [[], ["keda"], SENTINELS[0], ["keda", "monitoring", "tls"]], ids=" ".join)
def test_the_documented_second_model_has_no_faults(components: list[str], tmp_path: Path) -> None:
    """The second model's workers, disruption budget and scaler are separate from those of the first."""
    kustomization("A second model", tmp_path / "mpnet")
    (tmp_path / "own").mkdir()
    made = objects(compose("gpu", components, tmp_path / "own", ["../mpnet"]))
    assert find_faults(made) == []
    names = [each["metadata"]["name"] for each in of_kind(made, "Deployment")]
    assert sorted(names) == ["gateway", "worker", "worker-mpnet"]


def test_the_second_model_fits_into_the_documented_overlay(tmp_path: Path) -> None:
    """The overlay's settings of workers apply to the first model only."""
    kustomization("A second model", tmp_path / "mpnet")
    path = kustomization("Your own overlay", tmp_path / "own") / "kustomization.yaml"
    text = path.read_text(encoding="utf-8").replace("resources:\n", "resources:\n  - ../mpnet\n", 1)
    path.write_text(text, encoding="utf-8")
    made = objects(render(path.parent))
    assert find_faults(made) == []
    configs = [
        config_of(made, pod_of(named(made, "Deployment", name))["containers"][0]) for name in ("worker", "worker-mpnet")
    ]
    assert [each.get("REDBATCH_MAX_BATCH_SIZE") for each in configs] == ["128", None]


def test_the_restore_pod_has_the_privileges_of_redis(rendered: list[Manifest]) -> None:
    """The pod in docs/deploy.md that restores data has the context of Redis, and mounts its volume."""
    (text,) = re.findall(r"<<'END'\n(.*?)^END$", page("Back up", "deploy.md"), re.MULTILINE | re.DOTALL)
    pod = yaml.safe_load(text)
    (container,) = pod["spec"]["containers"]
    (redis,) = containers(pod_of(named(rendered, "StatefulSet", "redis")))
    assert schemas.violations([pod]) == []
    assert container == {
        "name": container["name"],
        "image": redis["image"],
        "command": ["sleep", "infinity"],
        "securityContext": security.CONTAINER_CONTEXT,
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    assert pod["spec"] == {
        "automountServiceAccountToken": False,
        "securityContext": security.pod_context(security.REDIS_USER),
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-redis-0"}}],
    }


FREE = {"annotations", "data", "labels", "limits", "matchLabels", "requests", "selector"}
"""Keys whose value is a mapping with arbitrary keys."""


def mutations(tree: object, *, free: bool = False) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yields paths and trees with one fault each: an unknown field, or a mapping instead of a value."""
    if isinstance(tree, dict):
        if not free:
            yield (), {**tree, "unknownField": "value"}
        for key, value in tree.items():
            for path, broken in mutations(value, free=key in FREE):
                yield (key, *path), {**tree, key: broken}
    elif isinstance(tree, list):
        for index, each in enumerate(tree):
            yield from ((path, [*tree[:index], broken, *tree[index + 1 :]]) for path, broken in mutations(each))
    else:
        yield ("value",), {"unexpected": "mapping"}


def test_the_schemas_refuse_unknown_fields_and_types(everything: list[Manifest]) -> None:
    """The schemas refuse a fault at each place of each kind, so that no misspelled field is ignored."""
    tried = set()
    for each in everything:
        custom = schemas.is_custom(each)
        for path, broken in mutations(each):
            # Free keys: the metadata of KEDA's triggers, and settings. apiVersion and kind select the schema.
            is_free = {"metadata"} & {*path} if custom else {"data", "value"} & {*path}
            if is_free or path[:1] in (("apiVersion",), ("kind",)) or (each["kind"], *path) in tried:
                continue
            tried.add((each["kind"], *path))
            assert isinstance(broken, dict)
            assert schemas.violations([broken]), (label(each), path)
    assert len(tried) > 200
