"""The play of Kubernetes goes by its rules, and refuses what it does not know."""

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
from tests.deploy.simulated_cluster.container import Place, container_of, mounted, run_of, words, write_secret
from tests.deploy.simulated_cluster.kubelet import Addresses, Pod, see_free
from tests.deploy.simulated_cluster.nginx import Balancer, nginx
from tests.deploy.simulated_cluster.probe import Probe
from tests.deploy.simulated_cluster.service import Service
from tests.processes import Processes
from tests.waiting import wait_until

SECRETS = [
    {"kind": "Secret", "metadata": {"name": f"{name}-redis"}, "stringData": {"url": f"redis://{name}"}}
    for name in ("gateway", "worker")
]


@pytest.fixture
def manifests() -> list[Manifest]:
    """Those that are committed, with Secrets."""
    return [*objects(RENDERED.read_text(encoding="utf-8")), *copy.deepcopy(SECRETS)]


@pytest.fixture
def worker(manifests: list[Manifest]) -> Manifest:
    """The Deployment of the workers."""
    return named(manifests, "Deployment", "worker")


@pytest.fixture
def gateway(manifests: list[Manifest]) -> Manifest:
    """The Deployment of the gateways."""
    return named(manifests, "Deployment", "gateway")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ["redbatch", "gateway"]),
        ({"args": ["worker"]}, ["redbatch", "worker"]),
        ({"command": ["redbatch", "dead"]}, ["redbatch", "dead"]),
        ({"command": ["tini", "--", "redbatch"], "args": ["up"]}, ["redbatch", "up"]),
    ],
)
def test_command_and_args_take_the_place_of_the_image_s(given: Manifest, found: list[str], gateway: Manifest) -> None:
    """`command` that of both ENTRYPOINT and CMD, `args` that of CMD alone."""
    assert words(container_of(gateway) | given) == found


def test_an_image_is_known_by_its_name(gateway: Manifest) -> None:
    """As the Dockerfile says how it is built: a container's own name says nothing."""
    container = container_of(gateway) | {"name": "worker", "image": "redbatch-worker:0.1.0-cpu"}
    assert words(container) == ["redbatch", "worker"]
    with pytest.raises(AssertionError, match="gatway"):
        words(container | {"image": "redbatch-gatway:0.1.0"})


def test_a_pod_s_fields_and_files_are_its_own(manifests: list[Manifest], worker: Manifest, tmp_path: Path) -> None:
    """Its name, its address where the image listens everywhere, and its Secret where it is mounted."""
    place = Place.of(worker, 3, "127.77.0.3")
    run = run_of(manifests, worker, place, tmp_path, {"REDBATCH_MODEL": "null"})
    assert (run.env["REDBATCH_WORKER_ID"], run.env["REDBATCH_ADMIN_HOST"]) == ("worker-3", "127.77.0.3")
    assert (run.env["REDBATCH_MODEL"], run.env["REDBATCH_DRAIN_GRACE_S"]) == ("null", "90")
    assert Path(run.env["REDBATCH_REDIS_URL_FILE"]).read_text(encoding="utf-8") == "redis://worker"


def test_a_secret_shows_what_is_named_of_it(manifests: list[Manifest], tmp_path: Path) -> None:
    """Under the path that is named there, and nothing else."""
    write_secret(manifests, {"secretName": "worker-redis", "items": [{"key": "url", "path": "of/redis"}]}, tmp_path)
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [Path("of/redis")]


def misread(path: str) -> Callable[[Manifest], None]:
    """Returns what has a container ask for a field."""

    def change(container: Manifest) -> None:
        container["env"][-1] = {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}

    return change


@pytest.mark.parametrize(
    "change",
    [
        misread("metadata.nam"),
        misread("metadata.labels['none']"),
        lambda container: container["env"].append({"name": "X", "value": "$(Y)"}),
        lambda container: container["env"].append({"name": "X", "valueFrom": {"secretKeyRef": {}}}),
        lambda container: container["envFrom"].append({"secretRef": {"name": "worker-redis"}}),
        lambda container: container.update(workingDir="/"),
        lambda container: container["volumeMounts"][0].update(subPath="x"),
    ],
)
def test_what_is_not_played_is_refused(
    change: Callable[[Manifest], None], manifests: list[Manifest], worker: Manifest, tmp_path: Path
) -> None:
    """Fields that a pod does not have, and whatever else of a container the play does not know."""
    change(container_of(worker))
    with pytest.raises(AssertionError):
        run_of(manifests, worker, Place.of(worker, 1, "127.77.0.1"), tmp_path, {})


def test_a_secret_that_is_not_there_is_missed(manifests: list[Manifest], worker: Manifest, tmp_path: Path) -> None:
    """By its own name, whatever the Deployment is called."""
    manifests.remove(named(manifests, "Secret", "worker-redis"))
    with pytest.raises(ValueError, match="unpack"):
        mounted(manifests, worker, tmp_path)


@pytest.mark.parametrize(
    "given", [{"exec": {}}, {"httpGet": {"port": "admin", "scheme": "HTTPS"}}, {"httpGet": {"port": "http"}}]
)
def test_a_probe_that_is_not_played_is_refused(given: Manifest, worker: Manifest) -> None:
    """Of another kind than HTTP, or of a port that is not there."""
    with pytest.raises(AssertionError):
        Probe.of(container_of(worker) | {"livenessProbe": given}, "livenessProbe", "127.0.0.1")


async def test_a_probe_counts_to_its_thresholds(worker: Manifest) -> None:
    """Two answers in a row make it well, three unwell, and what is in between says nothing."""
    given = {"httpGet": {"port": "admin"}, "periodSeconds": 0, "successThreshold": 2, "initialDelaySeconds": 0.2}
    probe = Probe.of(container_of(worker) | {"livenessProbe": given}, "livenessProbe", "127.0.0.1")
    answers = iter([200, 500, 200, 302, 500, 500, 200, 500, 503, 404])
    transport = httpx.MockTransport(lambda _request: httpx.Response(next(answers)))
    began = time.monotonic()
    async with httpx.AsyncClient(transport=transport) as client:
        verdicts = probe.verdicts(client, began)
        assert [await anext(verdicts), next(answers)] == [True, 500]
        assert time.monotonic() - began >= 0.2
        assert [await anext(verdicts), list(answers)] == [False, []]


def test_a_service_has_what_is_ready_and_does_not_leave(
    manifests: list[Manifest], gateway: Manifest, worker: Manifest, tmp_path: Path
) -> None:
    """By labels and by the name of a port; nothing has an endpoint under a name that it does not have."""
    every = [
        Pod(each, place, run_of(manifests, each, place, tmp_path / place.name, {}), Processes(tmp_path))
        for number, each in enumerate((gateway, gateway, gateway, worker))
        for place in [Place.of(each, number, f"127.77.0.{number}")]
    ]
    manifest = named(manifests, "Service", "gateway")
    for pod in every[1:]:
        pod.ready = True
    every[2].leaving = True
    assert Service(manifest, lambda: every).endpoints() == ["127.77.0.1:8080"]
    manifest["spec"]["ports"][0]["targetPort"] = "admin"
    assert Service(manifest, lambda: every).endpoints() == ["127.77.0.1:9090"]
    manifest["spec"]["ports"][0]["targetPort"] = "none"
    assert Service(manifest, lambda: every).endpoints() == []


def test_who_has_a_port_is_told() -> None:
    """Before anything waits for a pod that cannot come."""
    with socket.create_server(("0.0.0.0", 0)) as other, Addresses() as addresses:  # noqa: S104 - as a daemon may
        _, address = addresses.take()
        with pytest.raises(AssertionError, match=rf"pid {os.getpid()}, on 0\.0\.0\.0"):
            see_free(address, other.getsockname()[1])


def test_two_plays_have_addresses_of_their_own() -> None:
    """Each a block, until it ends."""
    with Addresses() as ours, Addresses() as theirs:
        assert ours.take()[1].rpartition(".")[0] != theirs.take()[1].rpartition(".")[0]


@pytest.mark.skipif(nginx() is None, reason="there is no nginx to balance the load")
async def test_each_change_reaches_the_proxy_so_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As it was, whatever has changed meanwhile."""
    monkeypatch.setattr("tests.deploy.simulated_cluster.nginx.LATE_S", 0.5)
    endpoints = ["127.0.0.1:1"]
    async with Balancer(tmp_path, lambda: list(endpoints)) as balancer:

        async def changed(port: int) -> None:
            endpoints[:] = [f"127.0.0.1:{port}"]
            began = time.monotonic()
            await wait_until(lambda: f"127.0.0.1:{port} " in (tmp_path / "nginx.conf").read_text(), "it has come")
            assert 0.5 <= time.monotonic() - began < 1.5

        first = asyncio.create_task(changed(2))
        await wait_until(lambda: bool(balancer._coming), "the first is on its way")
        assert not balancer.knows_all()
        await changed(3)
        await first
        assert balancer.knows_all()
