"""The images, built by the Dockerfile and run by an engine with the least privileges."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.chaos.history import judge
from tests.engine.bases import python_image, redis_image
from tests.engine.commands import CommandError
from tests.engine.engine import Engine
from tests.engine.images import GATEWAY, WORKER, size_mb
from tests.engine.load import Service, load
from tests.engine.network import address_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1_800)]

NETWORK = "images"
HARDENED = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp")
PORTS = {"gateway1": 8081, "gateway2": 8082}
MAX_GATEWAY_MB, MAX_WORKER_MB = 120.0, 1_100.0
"""The gateway's without its base, the worker's with it."""


@pytest.fixture(scope="module")
def services(engine: Engine) -> Iterator[Service]:
    """Two gateways and two workers with Redis, each with the least privileges; all are healthy."""
    engine.docker("network", "create", NETWORK)
    run(engine, "redis", redis_image())
    for name, port in PORTS.items():
        run(engine, name, GATEWAY, *HARDENED, f"--publish={port}:8080", "--env=REDBATCH_AUTH=off")
    for name in ("worker1", "worker2"):
        run(engine, name, WORKER, *HARDENED)
    for name in (*PORTS, "worker1", "worker2"):
        wait_until_healthy(engine, name)
    service = Service([f"http://{address_of(0)}:{port}" for port in PORTS.values()])
    service.learn_vectors()
    yield service
    engine.docker("rm", "--force", "--volumes", "redis", *PORTS, "worker1", "worker2")
    engine.docker("network", "rm", NETWORK)


def run(engine: Engine, name: str, image: str, *words: str) -> None:
    """Starts a container on the network of the tests, with further options of docker."""
    url = "--env=REDBATCH_REDIS_URL=redis://redis:6379/0"
    engine.docker("run", "--detach", f"--name={name}", f"--network={NETWORK}", url, *words, image)


def health(engine: Engine, name: str) -> str:
    """Returns what the health check of the image says: starting, healthy or unhealthy."""
    return str(engine.inspect(name)["State"]["Health"]["Status"])


def wait_until_healthy(engine: Engine, name: str, timeout_s: float = 120.0) -> None:
    """Returns once a container is healthy."""
    until = time.monotonic() + timeout_s
    while health(engine, name) != "healthy":
        assert time.monotonic() < until, engine.docker("logs", "--tail=20", name)
        time.sleep(0.2)


def stop_under_load(engine: Engine, services: Service, name: str) -> None:
    """Stops a container while clients call the gateways that are left: it exits with 0, and no request fails."""
    with load(services) as calls:
        time.sleep(1)
        if name in PORTS:
            services.urls.remove(f"http://{address_of(0)}:{PORTS[name]}")
        engine.docker("stop", "--time=60", name)
    assert engine.inspect(name)["State"]["ExitCode"] == 0, engine.docker("logs", "--tail=20", name)
    verdict = judge(calls)
    assert verdict.calls > 0
    assert verdict.lost == 0, verdict


def test_images_are_small(engine: Engine) -> None:
    """The gateway's image adds at most 120 MB to its base; that of a worker for CPUs has at most 1.1 GB in all."""
    assert size_mb(engine, GATEWAY) - size_mb(engine, python_image()) <= MAX_GATEWAY_MB
    assert size_mb(engine, WORKER) <= MAX_WORKER_MB


@pytest.mark.parametrize("name", ["gateway1", "worker1"])
def test_containers_have_no_privileges(engine: Engine, services: Service, name: str) -> None:
    """Processes run as 65532 without capabilities, and can write to /tmp only."""
    status = engine.docker("exec", name, "cat", "/proc/1/status")
    found = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (found["Uid"], found["Gid"]) == ("\t".join(["65532"] * 4),) * 2
    assert (int(found["CapEff"], 16), found["NoNewPrivs"]) == (0, "1")
    engine.docker("exec", name, "touch", "/tmp/file")  # noqa: S108 - the container's
    with pytest.raises(CommandError, match="Read-only"):
        engine.docker("exec", name, "touch", "/file")


def test_a_worker_without_redis_is_not_healthy(engine: Engine, services: Service) -> None:
    """A worker that has loaded its model and never reached Redis does not become healthy."""
    run(engine, "lost", WORKER, *HARDENED, "--env=REDBATCH_REDIS_URL=redis://nowhere:6379/0")
    try:
        read = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9091/readyz?exclude=redis').status)"

        def loaded() -> bool:
            try:
                return engine.docker("exec", "lost", "python", "-c", read) == "200"
            except CommandError:
                return False

        until = time.monotonic() + 120
        while not loaded():
            assert time.monotonic() < until, engine.docker("logs", "--tail=20", "lost")
            time.sleep(0.5)
        checks = len(engine.inspect("lost")["State"]["Health"]["Log"])
        while len(engine.inspect("lost")["State"]["Health"]["Log"]) <= checks:
            time.sleep(0.5)
        assert health(engine, "lost") == "starting"
    finally:
        engine.docker("rm", "--force", "lost")


def test_a_worker_stops_under_load(engine: Engine, services: Service) -> None:
    """One of two workers stops without a failed request."""
    stop_under_load(engine, services, "worker2")


def test_a_gateway_stops_under_load(engine: Engine, services: Service) -> None:
    """One of two gateways stops without a failed request."""
    stop_under_load(engine, services, "gateway2")
