"""The manifests for Kubernetes: what is committed is what kustomize makes, and nothing is wrong with any of it."""

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
    near,
    objects,
    of_kind,
    pod_of,
    render,
)
from tests.deploy.mutations import COMPONENTS as COMPONENTS_SECTION
from tests.deploy.mutations import MUTATIONS, OF_BASE, SHARED_GPUS, Mutation

OPTIONAL = [each for each in COMPONENTS if each != "gpu"]
"""Components that no overlay has by itself."""

TOGETHER = [each for each in OPTIONAL if each != "keda-cpu"]  # which is `keda` with other numbers


@pytest.fixture(scope="module")
def rendered() -> list[Manifest]:
    """The manifests that are committed."""
    return objects(RENDERED.read_text(encoding="utf-8"))


def test_what_is_committed_is_what_is_rendered() -> None:
    """`make manifests` writes it; and nothing else is where `kubectl apply -f k8s/` looks."""
    text = RENDERED.read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    assert (first[0], rest) == ("#", render(K8S / "overlays" / "gpu")), "make manifests"
    assert [path for path in K8S.iterdir() if path.is_file()] == [RENDERED]


def test_nothing_is_wrong_with_what_is_committed(rendered: list[Manifest]) -> None:
    """By schemas and by sense; and a cluster without others' custom resources takes it."""
    assert find_faults(rendered) == []
    assert len(rendered) > 15
    assert {each["apiVersion"] for each in rendered} == {
        "v1", "apps/v1", "policy/v1", "autoscaling/v2", "networking.k8s.io/v1",
    }  # fmt: skip


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("components", [[], *([each] for each in OPTIONAL), TOGETHER], ids=" ".join)
def test_nothing_is_wrong_with_what_can_be_made(overlay: str, components: list[str], tmp_path: Path) -> None:
    """Each overlay, with each component and with all of them."""
    assert find_faults(objects(compose(overlay, components, tmp_path))) == []


def test_each_overlay_is_for_a_device_and_asks_for_keys() -> None:
    """A GPU, a share of one, or none; and who tries it on a laptop needs no key."""
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


def test_nothing_secret_is_committed(rendered: list[Manifest]) -> None:
    """No Secret, in the rendered file or in what it is made of."""
    assert of_kind(rendered, "Secret") == []
    for path in K8S.rglob("*.yaml"):
        assert "\nkind: Secret" not in f"\n{path.read_text(encoding='utf-8')}", path
        assert "secretGenerator" not in path.read_text(encoding="utf-8"), path


def test_redis_has_the_file_that_was_tried() -> None:
    """The one that tests/deploy/test_swarm_redis.py starts a Redis with."""
    assert (K8S / "base" / "redis.conf").read_bytes() == (K8S.parent / "swarm" / "redis.conf").read_bytes()


@pytest.mark.parametrize(("check", "mutation"), OF_BASE, ids=str)
def test_each_deliberate_fault_is_found_by_its_check(rendered: list[Manifest], check: str, mutation: Mutation) -> None:
    """The check that lists a mutation finds it; the schemas find those in their own section and no others."""
    mutated = mutation.apply(rendered)
    violations = schemas.violations(mutated)
    lines = violations if check == "schemas" else [*getattr(checks, check).check(mutated)]
    assert (mutation.is_found(lines), violations == []) == (True, check != "schemas"), lines


def test_each_check_has_ten_deliberate_find_faults() -> None:
    """Every check is mutated, so that none of them can go blind unnoticed."""
    sections = {each.__name__.rpartition(".")[2] for each in (*checks.CHECKS, schemas)}
    assert {name for name, section in MUTATIONS.items() if len(section) >= 10} >= sections


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """An overlay with all components."""
    made = objects(compose("gpu", TOGETHER, tmp_path_factory.mktemp("everything")))
    assert {each["kind"] for each in made} > {"ScaledObject", "PodMonitor", "PrometheusRule", "Ingress", "HTTPRoute"}
    return made


@pytest.mark.parametrize("mutation", MUTATIONS[COMPONENTS_SECTION], ids=str)
def test_each_deliberate_fault_in_a_component_is_found(everything: list[Manifest], mutation: Mutation) -> None:
    """The same for custom resources, TLS, and the proxies in front of the gateways."""
    lines = find_faults(mutation.apply(everything))
    assert mutation.is_found(lines), lines


@pytest.fixture(scope="module")
def shared() -> list[Manifest]:
    """The overlay in which workers share GPUs."""
    return objects(render(K8S / "overlays" / "gpu-shared"))


@pytest.mark.parametrize("mutation", MUTATIONS[SHARED_GPUS], ids=str)
def test_each_deliberate_fault_of_shared_gpus_is_found(shared: list[Manifest], mutation: Mutation) -> None:
    """A worker without a lease, or with the lease of another node, would use a GPU that another worker holds."""
    lines = find_faults(mutation.apply(shared))
    assert mutation.is_found(lines), lines


def test_what_is_missing_or_there_twice_is_noticed(rendered: list[Manifest]) -> None:
    """Each object that is doubled, or taken away: all are needed."""
    assert "there are no manifests" in find_faults([])
    for place, each in enumerate(rendered):
        assert f"{label(each)}: it occurs twice" in find_faults([*rendered, each])
        assert find_faults([*rendered[:place], *rendered[place + 1 :]]), label(each)


def page(heading: str) -> str:
    """Returns what docs/deploy.md says under a heading."""
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    return re.split(r"^##+ ", text.split(f"\n### {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def kustomization(heading: str, folder: Path) -> Path:
    """Writes the kustomization under a heading into a folder, from which it finds k8s/; returns the folder."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page(heading), re.MULTILINE | re.DOTALL)
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(text.replace("redbatch/k8s", near(".", folder)), encoding="utf-8")
    return folder


def test_the_overlay_of_the_page_is_right(tmp_path: Path) -> None:
    """A user's own, as docs/deploy.md has it."""
    assert find_faults(objects(render(kustomization("Your own overlay", tmp_path / "own")))) == []


@pytest.mark.parametrize("components", [[], ["keda"], ["keda", "monitoring", "tls"]], ids=" ".join)
def test_the_second_model_of_the_page_is_right(components: list[str], tmp_path: Path) -> None:
    """Its workers, their budget and their scaler are beside those of the first, and have none of them in common."""
    kustomization("A second model", tmp_path / "mpnet")
    (tmp_path / "own").mkdir()
    made = objects(compose("gpu", components, tmp_path / "own", ["../mpnet"]))
    assert find_faults(made) == []
    names = [each["metadata"]["name"] for each in of_kind(made, "Deployment")]
    assert sorted(names) == ["gateway", "worker", "worker-mpnet"]


def test_the_second_model_goes_into_the_overlay_of_the_page(tmp_path: Path) -> None:
    """Whose settings of workers are still those of the first model."""
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


def test_the_pod_that_restores_may_no_more_than_redis(rendered: list[Manifest]) -> None:
    """The one of docs/deploy.md: the cluster lets it in, and it finds the data."""
    (text,) = re.findall(r"<<'END'\n(.*?)^END$", page("Back up"), re.MULTILINE | re.DOTALL)
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
"""Under these is a mapping with keys of one's own."""


def breaks(tree: object, *, free: bool = False) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yields a tree with one thing wrong in it, and where: an unknown field, or a mapping where there was a value."""
    if isinstance(tree, dict):
        if not free:
            yield (), {**tree, "notThere": "it"}
        for key, value in tree.items():
            for path, broken in breaks(value, free=key in FREE):
                yield (key, *path), {**tree, key: broken}
    elif isinstance(tree, list):
        for place, each in enumerate(tree):
            yield from ((path, [*tree[:place], broken, *tree[place + 1 :]]) for path, broken in breaks(each))
    else:
        yield ("value",), {"not": "there"}


def test_schemas_refuse_what_there_is_not(everything: list[Manifest]) -> None:
    """In each place of each kind: a typing error is no field that is left out."""
    tried = set()
    for each in everything:
        custom = schemas.is_custom(each)
        for path, broken in breaks(each):
            # Both by keys of their own: what KEDA's triggers say, and settings. And by these two a schema is found.
            theirs = {"metadata"} & {*path} if custom else {"data", "value"} & {*path}
            if theirs or path[:1] in (("apiVersion",), ("kind",)) or (each["kind"], *path) in tried:
                continue
            tried.add((each["kind"], *path))
            assert isinstance(broken, dict)
            assert schemas.violations([broken]), (label(each), path)
    assert len(tried) > 200
