"""The manifests for Kubernetes: what is committed is what kustomize makes, and nothing is wrong with any of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.faults import faults
from tests.deploy.faults.deliberate import OF_BASE, OF_COMPONENTS, OF_SHARED_GPUS, Fault
from tests.deploy.faults.pods import gpu_of
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
    render,
)

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
    assert faults(rendered) == []
    assert len(rendered) > 15
    assert {each["apiVersion"] for each in rendered} == {
        "v1", "apps/v1", "policy/v1", "autoscaling/v2", "networking.k8s.io/v1",
    }  # fmt: skip


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("components", [[], *([each] for each in OPTIONAL), TOGETHER], ids=" ".join)
def test_nothing_is_wrong_with_what_can_be_made(overlay: str, components: list[str], tmp_path: Path) -> None:
    """Each overlay, with each component and with all of them."""
    assert faults(objects(compose(overlay, components, tmp_path))) == []


def test_each_overlay_is_for_a_device_and_asks_for_keys() -> None:
    """A GPU, a share of one, or none; and who tries it on a laptop needs no key."""
    made = {overlay: objects(render(K8S / "overlays" / overlay)) for overlay in OVERLAYS}
    assert {overlay: gpu_of(named(found, "Deployment", "worker")) for overlay, found in made.items()} == {
        "dev-cpu": "", "gpu": "nvidia.com/gpu", "gpu-shared": "nvidia.com/gpu.shared",
    }  # fmt: skip
    gateways = {overlay: next(containers(pod_of(named(each, "Deployment", "gateway")))) for overlay, each in made.items()}
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
    """The one that tests/deploy/test_swarm.py starts a Redis with."""
    assert (K8S / "base" / "redis.conf").read_bytes() == (K8S.parent / "swarm" / "redis.conf").read_bytes()


@pytest.mark.parametrize("fault", OF_BASE, ids=lambda fault: " ".join(fault[:4]))
def test_what_is_broken_is_noticed(rendered: list[Manifest], fault: Fault) -> None:
    """Each deliberate fault, by the check that is for it."""
    notice(rendered, fault)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """An overlay with all components."""
    return objects(compose("gpu", TOGETHER, tmp_path_factory.mktemp("everything")))


@pytest.mark.parametrize("fault", OF_COMPONENTS, ids=lambda fault: " ".join(fault[:4]))
def test_what_is_broken_in_a_component_is_noticed(everything: list[Manifest], fault: Fault) -> None:
    """The same of custom resources, of TLS and of what is before the gateways."""
    notice(everything, fault)


@pytest.fixture(scope="module")
def shared() -> list[Manifest]:
    """The overlay in which workers share GPUs."""
    return objects(render(K8S / "overlays" / "gpu-shared"))


@pytest.mark.parametrize("fault", OF_SHARED_GPUS, ids=lambda fault: " ".join(fault[:4]))
def test_what_is_broken_between_those_who_share_is_noticed(shared: list[Manifest], fault: Fault) -> None:
    """Whoever takes a GPU without a lease, or by that of another node, takes it from the others."""
    notice(shared, fault)


def notice(manifests: list[Manifest], fault: Fault) -> None:
    """Has a fault be noticed."""
    lines = faults(fault.made(manifests))
    assert fault.is_told(lines), lines


def test_what_is_missing_or_there_twice_is_noticed(rendered: list[Manifest]) -> None:
    """Each object that is taken away or doubled, but for those that a test by itself would not miss."""
    assert faults([]) == ["there is nothing in it"]
    for place, each in enumerate(rendered):
        assert f"{label(each)}: it is there twice" in faults([*rendered, each])
        without = [*rendered[:place], *rendered[place + 1 :]]
        assert faults(without) or each["kind"] == "HorizontalPodAutoscaler", label(each)
