"""Rollouts in a simulated cluster, with the committed manifests, under load, behind a load balancer."""

from __future__ import annotations

import asyncio
import copy
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from api.server import LINGER_S
from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.redis_users import k8s
from redbatch.redis_users.passwords import RedisAddress, new_credentials
from shared.settings import QueueSettings
from tests import plain_http
from tests.chaos.history import Call, Verdict, judge
from tests.chaos.load import load
from tests.chaos.scenario import all_correct
from tests.deploy.manifests import RENDERED, Manifest, named, objects, of_kind, pod_of
from tests.deploy.rollout_clients import MODEL, run_job, slow_load
from tests.deploy.simulated_cluster.container import PodIdentity, command_of, container_of
from tests.deploy.simulated_cluster.controller import Deployment
from tests.deploy.simulated_cluster.kubelet import Addresses, Pod, require_free_ports
from tests.deploy.simulated_cluster.nginx import Balancer
from tests.deploy.simulated_cluster.service import Service
from tests.nginx import nginx
from tests.processes import Processes
from tests.servers import Server
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.starts_first,
    pytest.mark.skipif(nginx() is None, reason="nginx is not installed"),
]

CLIENTS, SLOW_CLIENTS = 12, 8
ENTRY = 32
"""Inputs of one entry: a batch of the slow workers, and a request of a slow client."""

JOB = 14 * ENTRY
IMAGES: dict[str, dict[str, str]] = {
    "gateway": {},
    "worker": {"REDBATCH_MODEL": "simulated:base_ms=20,item_ms=2", "REDBATCH_QUEUE": "minilm"},
    f"worker-{MODEL}": {
        "REDBATCH_MODEL": "simulated:base_ms=1000,item_ms=0",
        "REDBATCH_QUEUE": MODEL,
        "REDBATCH_MAX_BATCH_SIZE": str(ENTRY),
        "REDBATCH_BULK_SHARE": "0.3",
    },
}
"""Images of simulated models, which load at once and whose vectors identify their texts. Requests to the slow one wait
for each other, for about ten seconds."""


@dataclass
class Cluster:
    """The simulated objects of the manifests."""

    gateways: Deployment
    workers: Deployment
    slow: Deployment
    service: Service
    balancer: Balancer
    headers: dict[str, str]

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """All Deployments."""
        return self.gateways, self.workers, self.slow

    def load(self) -> AbstractAsyncContextManager[list[Call]]:
        """Runs clients until the end of the block."""
        return load(self.balancer.urls, CLIENTS, headers=self.headers)

    def slow_load(self) -> AbstractAsyncContextManager[list[Call]]:
        """Runs clients with slow requests until the end of the block."""
        return slow_load(self.balancer.urls, SLOW_CLIENTS, ENTRY, self.headers)

    def job(self) -> asyncio.Task[Call]:
        """Starts a client with a job."""
        return asyncio.create_task(run_job(self.balancer.urls, JOB, self.headers))

    async def wait_until_both_models(self) -> None:
        """Waits until each gateway has seen workers of both models: it checks for new ones once a second."""

        def seen() -> bool:
            answers = [plain_http.get(f"http://{each}/v1/models", headers=self.headers) for each in found]
            assert all(answer.is_success for answer in answers), f"{found} are no gateways: {answers}"
            return all({row["id"] for row in answer.json()["data"]} == {"minilm", MODEL} for answer in answers)

        found = self.service.endpoints()
        assert found, "the Service selects no ready gateway with its port"
        await wait_until(seen, "the gateways see both models", timeout_s=60, poll_s=0.1)


@pytest.fixture
def manifests() -> list[Manifest]:
    """Returns the committed manifests, with workers of a second model, as in docs/deploy.md."""
    found = objects(RENDERED.read_text(encoding="utf-8"))
    second = copy.deepcopy(named(found, "Deployment", "worker"))
    second["metadata"]["name"] = f"worker-{MODEL}"
    second["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/instance"] = MODEL
    return [*found, second]


@pytest.fixture
def without_drain(manifests: list[Manifest]) -> None:
    """Removes preStop and drain_delay_s from the gateways, so that they end at once."""
    (container,) = pod_of(named(manifests, "Deployment", "gateway"))["containers"]
    del container["lifecycle"]
    container["env"].append({"name": "REDBATCH_DRAIN_DELAY_S", "value": "0"})


def secrets_for(url: str) -> list[Manifest]:
    """Returns the Secrets that `redbatch k8s secrets` makes, with the address and the passwords of a test's Redis."""
    found = of_kind(
        objects(k8s.manifests("redbatch", new_credentials(None), RedisAddress("redis", 6379, tls=False))), "Secret"
    )
    for values in (each["stringData"] for each in found):
        if "url" in values:
            values["url"] = as_user(url, str(urlsplit(values["url"]).username))
    return found


@pytest_asyncio.fixture
async def cluster(manifests: list[Manifest], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Yields two gateways behind nginx, two workers, and one worker of a slow model, each a pod of its Deployment."""
    folder = tmp_path_factory.mktemp("cluster")
    with Addresses() as addresses, Server() as server:
        all_manifests = [*manifests, *secrets_for(server.url)]
        async with Processes(folder) as processes:

            def make(workload: Manifest) -> Pod:
                identity = PodIdentity.of(workload, *addresses.take())
                image = IMAGES[workload["metadata"]["name"]]
                require_free_ports(container_of(workload), identity.address)
                return Pod(
                    workload,
                    identity,
                    command_of(all_manifests, workload, identity, folder / identity.name, image),
                    processes,
                )

            gateways, workers, slow = (Deployment(named(all_manifests, "Deployment", name), make) for name in IMAGES)
            deployments = (gateways, workers, slow)
            service = Service(
                named(all_manifests, "Service", "gateway"),
                lambda: [pod for each in deployments for pod in each.created],
            )
            try:
                await start(gateways, workers, slow)
                async with Balancer(tmp_path_factory.mktemp("nginx"), service.endpoints) as balancer:
                    key = create_key(named(all_manifests, "Secret", "admin-redis")["stringData"]["url"])
                    # nginx closes client connections when it reloads its file: each call uses a new one.
                    headers = {"authorization": f"Bearer {key}", "connection": "close"}
                    found = Cluster(gateways, workers, slow, service, balancer, headers)
                    await found.wait_until_both_models()
                    yield found
            finally:
                await asyncio.gather(*(each.kill() for each in deployments))


async def start(gateways: Deployment, workers: Deployment, slow: Deployment) -> None:
    """Starts the pods of all; the gateways must become ready although there is no worker yet."""

    def ready() -> bool:
        return starting.done() or [pod.ready for pod in gateways.pods] == [True, True]

    starting = asyncio.create_task(gateways.scale(2))
    await wait_until(ready, "the gateways are ready without a worker", timeout_s=60)
    await asyncio.gather(starting, workers.scale(2), slow.scale(1))


def create_key(url: str) -> str:
    """Returns an API key that allows jobs too, created as in docs/deploy.md."""
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "redbatch", "keys", "create", "--scope", "embed", "--scope", "jobs"],
        env=os.environ | {"REDBATCH_REDIS_URL": url},
        check=True,
        capture_output=True,
        text=True,
    )
    (key,) = re.findall(r"^\S+\.\S{20,}$", ran.stdout, re.MULTILINE)
    return str(key)


def setting(settings: type[QueueSettings], pod: Pod, name: str) -> float:
    """Returns a setting of a pod: the value of its variable, or else the default."""
    return float(pod.env.get(f"REDBATCH_{name.upper()}", settings.model_fields[name].default))


def print_verdict(calls: Iterable[Call], name: str) -> Verdict:
    """Prints and returns the verdict on calls."""
    verdict = judge(calls)
    sys.stdout.write(f"{name}: {verdict}\n")
    return verdict


async def hang(workers: Deployment) -> str:
    """Makes a worker hang with the entries that it has claimed, and deletes it with a short grace; returns its name."""
    pod = workers.pods[0]
    assert pod.program is not None
    pod.program.signal(signal.SIGSTOP)
    await workers.remove(pod, grace_s=2)
    return pod.name


@pytest.mark.timeout(360)
async def test_rollouts_fail_no_request(cluster: Cluster) -> None:
    """All requests and a job are answered during rollouts, the removal of a gateway and the hang of a worker.

    Each pod ends itself within its grace period, except the one that hangs: it is killed at the end of its grace
    period, and another worker takes over the entries that it had claimed.
    """
    gateways, workers = cluster.gateways, cluster.workers
    async with cluster.load() as calls:
        async with cluster.slow_load() as slow_calls:
            job = cluster.job()
            await asyncio.gather(*(each.roll_out() for each in cluster.deployments))
            gateways.remove(gateways.pods[0])
            hung = await hang(workers)
            await wait_until(cluster.balancer.is_up_to_date, "the proxy knows the endpoints", timeout_s=60)
            rolled = time.monotonic()
        await asyncio.gather(job, *(each.wait_until_ended() for each in cluster.deployments))
    verdicts = print_verdict(calls, "quick"), print_verdict(slow_calls, "slow"), print_verdict([job.result()], "job")
    assert all(map(all_correct, verdicts)), verdicts
    codes = {name: end.code for each in cluster.deployments for name, end in each.exits.items()}
    assert codes == dict.fromkeys(codes, 0) | {hung: -signal.SIGKILL}
    assert [each.restarts() for each in cluster.deployments] == [0, 0, 0]
    pod = gateways.created[0]
    patience_s = pod.pre_stop_s + setting(GatewaySettings, pod, "drain_delay_s") + LINGER_S
    assert max(end.after_s for end in gateways.exits.values()) > patience_s + 0.5, (
        "no gateway had to wait for a request"
    )
    assert job.result().ended > rolled, "the job had ended before the rollout"
    taken_over_s = setting(WorkerSettings, workers.created[0], "reclaim_idle_ms") / 1000
    assert verdicts[0].slowest_s > taken_over_s - 0.5, "the worker that hung had claimed nothing"


@pytest.mark.long
@pytest.mark.usefixtures("without_drain")
@pytest.mark.timeout(360)
async def test_gateways_without_a_drain_fail_requests(cluster: Cluster) -> None:
    """Without preStop and drain delay requests are lost, so the test above can fail."""
    async with cluster.load() as calls:
        await cluster.gateways.roll_out()
        await wait_until(cluster.balancer.is_up_to_date, "the proxy knows the endpoints", timeout_s=60)
    assert print_verdict(calls, "quick").lost > 0
