"""The simulated cluster follows the rules of Kubernetes, and refuses unsupported fields."""

from __future__ import annotations

import asyncio
import copy
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.deploy.manifests import RENDERED, Manifest, named, objects
from tests.deploy.simulated_cluster.container import (
    PodIdentity,
    command_of,
    container_of,
    mount_secrets,
    words,
    write_secret,
)
from tests.deploy.simulated_cluster.kubelet import Addresses, Pod, require_free_port
from tests.deploy.simulated_cluster.nginx import Balancer
from tests.deploy.simulated_cluster.probe import Probe
from tests.deploy.simulated_cluster.service import Service
from tests.nginx import nginx
from tests.processes import Processes
from tests.waiting import wait_until

SECRETS = [
    {"kind": "Secret", "metadata": {"name": f"{name}-redis"}, "stringData": {"url": f"redis://{name}"}}
    for name in ("gateway", "worker")
]


@pytest.fixture
def manifests() -> list[Manifest]:
    """Returns the committed manifests, with Secrets."""
    return [*objects(RENDERED.read_text(encoding="utf-8")), *copy.deepcopy(SECRETS)]


@pytest.fixture
def worker(manifests: list[Manifest]) -> Manifest:
    """Returns the Deployment of the workers."""
    return named(manifests, "Deployment", "worker")


@pytest.fixture
def gateway(manifests: list[Manifest]) -> Manifest:
    """Returns the Deployment of the gateways."""
    return named(manifests, "Deployment", "gateway")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["redbatch", "gateway"]),
        ({"args": ["worker"]}, ["redbatch", "worker"]),
        ({"command": ["redbatch", "dead"]}, ["redbatch", "dead"]),
        ({"command": ["tini", "--", "redbatch"], "args": ["up"]}, ["redbatch", "up"]),
    ],
)
def test_command_and_args_override_the_image(given: Manifest, expected: list[str], gateway: Manifest) -> None:
    """`command` overrides ENTRYPOINT and CMD, `args` only CMD."""
    assert words(container_of(gateway) | given) == expected


def test_an_image_is_identified_by_its_name(gateway: Manifest) -> None:
    """The image's tag in the Dockerfile selects the stage; the name of the container does not matter."""
    container = container_of(gateway) | {"name": "worker", "image": "redbatch-worker:0.1.0-cpu"}
    assert words(container) == ["redbatch", "worker"]
    with pytest.raises(AssertionError, match="gatway"):
        words(container | {"image": "redbatch-gatway:0.1.0"})


def test_a_pod_has_its_fields_and_files(manifests: list[Manifest], worker: Manifest, tmp_path: Path) -> None:
    """A pod gets its name, its address instead of 0.0.0.0, and the path of its mounted Secret."""
    identity = PodIdentity.of(worker, 3, "127.77.0.3")
    run = command_of(manifests, worker, identity, tmp_path, {"REDBATCH_MODEL": "null"})
    assert (run.env["REDBATCH_WORKER_ID"], run.env["REDBATCH_ADMIN_HOST"]) == ("worker-3", "127.77.0.3")
    assert (run.env["REDBATCH_MODEL"], run.env["REDBATCH_DRAIN_GRACE_S"]) == ("null", "90")
    assert Path(run.env["REDBATCH_REDIS_URL_FILE"]).read_text(encoding="utf-8") == "redis://worker"


def test_a_secret_volume_contains_only_its_items(manifests: list[Manifest], tmp_path: Path) -> None:
    """A volume with `items` contains these keys at their paths, and no others."""
    write_secret(manifests, {"secretName": "worker-redis", "items": [{"key": "url", "path": "of/redis"}]}, tmp_path)
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [Path("of/redis")]


def read_field(path: str) -> Callable[[Manifest], None]:
    """Returns a change that makes a container read a field of its pod."""

    def change(container: Manifest) -> None:
        container["env"][-1] = {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}

    return change


@pytest.mark.parametrize(
    "change",
    [
        read_field("metadata.nam"),
        read_field("metadata.labels['none']"),
        lambda container: container["env"].append({"name": "X", "value": "$(Y)"}),
        lambda container: container["env"].append({"name": "X", "valueFrom": {"secretKeyRef": {}}}),
        lambda container: container["envFrom"].append({"secretRef": {"name": "worker-redis"}}),
        lambda container: container.update(workingDir="/"),
        lambda container: container["volumeMounts"][0].update(subPath="x"),
    ],
)
def test_unsupported_fields_are_refused(
    change: Callable[[Manifest], None], manifests: list[Manifest], worker: Manifest, tmp_path: Path
) -> None:
    """Unknown fields of a pod, and fields of a container that the simulation does not support, are refused."""
    change(container_of(worker))
    with pytest.raises(AssertionError):
        command_of(manifests, worker, PodIdentity.of(worker, 1, "127.77.0.1"), tmp_path, {})


def test_a_missing_secret_is_an_error(manifests: list[Manifest], worker: Manifest, tmp_path: Path) -> None:
    """A Secret is looked up by its name in the manifest."""
    manifests.remove(named(manifests, "Secret", "worker-redis"))
    with pytest.raises(ValueError, match="unpack"):
        mount_secrets(manifests, worker, tmp_path)


@pytest.mark.parametrize(
    "given", [{"exec": {}}, {"httpGet": {"port": "admin", "scheme": "HTTPS"}}, {"httpGet": {"port": "http"}}]
)
def test_an_unsupported_probe_is_refused(given: Manifest, worker: Manifest) -> None:
    """A probe of another kind than HTTP, or of an unknown port, is refused."""
    with pytest.raises(AssertionError):
        Probe.of(container_of(worker) | {"livenessProbe": given}, "livenessProbe", "127.0.0.1")


async def test_a_probe_counts_to_its_thresholds(worker: Manifest) -> None:
    """Two successes in a row yield True and three failures yield False; shorter runs yield nothing."""
    given = {"httpGet": {"port": "admin"}, "periodSeconds": 0, "successThreshold": 2, "initialDelaySeconds": 0.2}
    probe = Probe.of(container_of(worker) | {"livenessProbe": given}, "livenessProbe", "127.0.0.1")
    answers = iter([200, 500, 200, 302, 500, 500, 200, 500, 503, 404])
    transport = httpx.MockTransport(lambda _request: httpx.Response(next(answers)))
    began = time.monotonic()
    async with httpx.AsyncClient(transport=transport) as client:
        results = probe.results(client, began)
        assert [await anext(results), next(answers)] == [True, 500]
        assert time.monotonic() - began >= 0.2
        assert [await anext(results), list(answers)] == [False, []]


def test_a_service_has_ready_pods_that_are_not_terminating(
    manifests: list[Manifest], gateway: Manifest, worker: Manifest, tmp_path: Path
) -> None:
    """A Service selects pods by labels and port name; a pod without that port is no endpoint."""
    pods = [
        Pod(each, identity, command_of(manifests, each, identity, tmp_path / identity.name, {}), Processes(tmp_path))
        for number, each in enumerate((gateway, gateway, gateway, worker))
        for identity in [PodIdentity.of(each, number, f"127.77.0.{number}")]
    ]
    manifest = named(manifests, "Service", "gateway")
    for pod in pods[1:]:
        pod.ready = True
    pods[2].terminating = True
    assert Service(manifest, lambda: pods).endpoints() == ["127.77.0.1:8080"]
    manifest["spec"]["ports"][0]["targetPort"] = "admin"
    assert Service(manifest, lambda: pods).endpoints() == ["127.77.0.1:9090"]
    manifest["spec"]["ports"][0]["targetPort"] = "none"
    assert Service(manifest, lambda: pods).endpoints() == []


def test_the_user_of_a_port_is_reported() -> None:
    """A port in use is an error with the process that listens, before a test waits for the pod."""
    with socket.create_server(("0.0.0.0", 0)) as other, Addresses() as addresses:  # noqa: S104 - as a daemon may
        _, address = addresses.take()
        with pytest.raises(AssertionError, match=rf"pid {os.getpid()}, on 0\.0\.0\.0"):
            require_free_port(address, other.getsockname()[1])


def test_two_simulations_have_separate_addresses() -> None:
    """Each simulation reserves another block of addresses."""
    with Addresses() as ours, Addresses() as theirs:
        assert ours.take()[1].rpartition(".")[0] != theirs.take()[1].rpartition(".")[0]


@pytest.mark.skipif(nginx() is None, reason="nginx is not installed")
async def test_each_change_reaches_the_proxy_after_the_delay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each change of the endpoints reaches nginx after the delay, even if another change follows it."""
    monkeypatch.setattr("tests.deploy.simulated_cluster.nginx.ENDPOINT_DELAY_S", 0.5)
    endpoints = ["127.0.0.1:1"]
    async with Balancer(tmp_path, lambda: list(endpoints)) as balancer:

        async def changed(port: int) -> None:
            endpoints[:] = [f"127.0.0.1:{port}"]
            began = time.monotonic()
            await wait_until(
                lambda: f"127.0.0.1:{port} " in (tmp_path / "nginx.conf").read_text(), "nginx has the change"
            )
            assert 0.5 <= time.monotonic() - began < 10

        first = asyncio.create_task(changed(2))
        await wait_until(lambda: bool(balancer._pending), "the first change is pending")
        assert not balancer.is_up_to_date()
        await changed(3)
        await first
        assert balancer.is_up_to_date()
