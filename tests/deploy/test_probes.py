"""The manifests' probes, sent to real processes."""

from __future__ import annotations

from typing import Any

import pytest

from redbatch.up.local_redis import free_port
from tests import plain_http
from tests.deploy.checks.ports import PARTS
from tests.deploy.manifests import RENDERED, named, objects, pod_of
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.processes import Processes
from tests.waiting import wait_until

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def paths(name: str) -> dict[str, str]:
    """Returns the paths of a Deployment's probes."""
    (container,) = pod_of(named(objects(RENDERED.read_text(encoding="utf-8")), "Deployment", name))["containers"]
    return {probe: container[probe]["httpGet"]["path"] for probe in PROBES}


def answers(admin: str, name: str) -> list[int]:
    """Returns the statuses of the admin port of a process for these paths, in their order."""
    return [plain_http.get(f"{admin}{path}").status_code for path in paths(name).values()]


@pytest.fixture
def unreachable_url() -> str:
    """Returns the URL of a Redis that does not exist."""
    return f"redis://127.0.0.1:{free_port()}/0"


async def test_a_worker_loads_and_lives_without_redis(
    unreachable_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without Redis a worker has started, is alive and not ready, so that no outage restarts it."""
    async with Processes(tmp_path_factory.mktemp("alone")) as processes:
        cluster = GatewayCluster(processes, unreachable_url, "minilm")
        worker = await processes.start("worker", "gpuworker", cluster.env(model="null"))
        await wait_until(lambda: bool(worker.log_records("engine ready")), "its engine is ready", timeout_s=30)
        admin = f"http://127.0.0.1:{worker.log_records('worker starts')[0]['admin_port']}"
        await wait_until(lambda: answers(admin, "worker") == [200, 200, 503], "the worker has started")
        missing: Any = plain_http.get(f"{admin}/readyz").json()["missing"]
        assert set(missing) <= PARTS["worker"]


async def test_a_gateway_lives_without_redis(unreachable_url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without Redis a gateway has started, is alive and not ready, even if workers are excluded."""
    async with Processes(tmp_path_factory.mktemp("alone")) as processes:
        gateway = await GatewayCluster(processes, unreachable_url, "minilm").start_gateway()
        assert answers(gateway.admin, "gateway") == [200, 200, 503]
        assert set(gateway.missing()) <= PARTS["gateway"]


@pytest.mark.redis
async def test_a_gateway_is_ready_without_a_worker(
    redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A gateway without a worker is ready: it answers requests with 503 and Retry-After itself."""
    async with Processes(tmp_path_factory.mktemp("alone")) as processes:
        gateway = await GatewayCluster(processes, redis_url, queue_name).start_gateway()
        await wait_until(lambda: gateway.missing() == ["worker"], "the gateway lacks only a worker")
        assert answers(gateway.admin, "gateway") == [200, 200, 200]
