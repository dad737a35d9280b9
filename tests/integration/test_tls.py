"""TLS between the cluster and Redis, with certificates of the suite, on a redis-server with TLS (Debian's has it)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis
import trustme
from typer.testing import CliRunner

from redbatch.commands import app
from redbatch.up.local_redis import LocalRedisError, free_port
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    null_vector,
    vector_bytes,
)
from tests.processes import Processes, Program
from tests.servers import Server, skip
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.tls]

RunQueue = Callable[..., tuple[int, str]]


@dataclass
class TlsRedis:
    """A Redis that requires TLS with client certificates; the observer connects without TLS."""

    server: Server
    port: int
    folder: Path

    @property
    def url(self) -> str:
        """The URL for clients with TLS."""
        return re.sub(r"redis://(.*?)127.0.0.1:\d+", rf"rediss://\g<1>localhost:{self.port}", self.server.url)

    def settings(self, **more: object) -> dict[str, Any]:
        """Returns the settings of a process with a client certificate."""
        names = {"ca": "ca.pem", "cert": "client.pem", "key": "client.key"}
        files = {f"redis_tls_{name}": self.folder / file for name, file in names.items()}
        return {"redis_url": self.url, **files, **more}

    def variables(self, user: str, **more: object) -> dict[str, str]:
        """Returns the same settings as environment variables, for a Redis user."""
        variables = {f"REDBATCH_{name.upper()}": str(value) for name, value in self.settings(**more).items()}
        return {**variables, "REDBATCH_REDIS_URL": as_user(str(variables["REDBATCH_REDIS_URL"]), user)}


def write_certificates(ca: trustme.CA, folder: Path, hosts: Sequence[str] = ("localhost",)) -> None:
    """Writes the certificates of an authority, of Redis, and of a client, with the private keys of the last two."""
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for name, identities in (("redis", hosts), ("client", ["client.redbatch"])):
        certificate = ca.issue_cert(*identities)
        certificate.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        certificate.private_key_pem.write_to_path(folder / f"{name}.key")


@pytest.fixture
def tls_redis(tmp_path: Path) -> Iterator[TlsRedis]:
    """A Redis with TLS; skips the test if the server was built without TLS."""
    write_certificates(trustme.CA(), tmp_path)
    port = free_port()
    options = ["--tls-port", str(port), "--tls-auth-clients", "yes", "--tls-ca-cert-file", f"{tmp_path}/ca.pem"]
    options += ["--tls-cert-file", f"{tmp_path}/redis.pem", "--tls-key-file", f"{tmp_path}/redis.key"]
    server = Server(options=options)
    try:
        server.start()
    except LocalRedisError as error:
        if "Bad directive" not in str(error):
            raise
        skip("this redis-server was built without TLS")
    with server:
        yield TlsRedis(server, port, tmp_path)


@pytest_asyncio.fixture
async def cluster(
    tls_redis: TlsRedis, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """Gateways and workers of this test, on a queue in that Redis."""
    async with Processes(tmp_path_factory.mktemp("tls_redis")) as processes:
        cluster = GatewayCluster(processes, tls_redis.server.url, queue_name)
        yield cluster
    cluster.check_leaks()


async def start_gateway_and_worker(cluster: GatewayCluster, tls_redis: TlsRedis) -> tuple[GatewayProcess, Program]:
    """Starts a gateway and a worker, and waits until the gateway sees the worker."""
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(**tls_redis.settings()), cluster.start_worker(**tls_redis.settings())
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway, worker


def serves(gateway: GatewayProcess, text: str) -> bool:
    """Returns whether a text gets its vector."""
    answer = gateway.embed({"text": text})
    return answer.status_code == 200 and vector_bytes(answer.json()["embedding"]) == null_vector(text)


def connections(tls_redis: TlsRedis) -> list[dict[str, Any]]:
    """Returns the connections of gateways and workers."""
    with redis.Redis.from_url(tls_redis.server.url, protocol=2) as observer:
        rows: Any = observer.client_list()
    return [row for row in rows if row["name"].startswith(("gateway:", "worker:"))]


def cut_all(tls_redis: TlsRedis) -> None:
    """Closes all connections of gateways and workers, through Redis."""
    with redis.Redis.from_url(tls_redis.server.url, protocol=2) as observer:
        for row in connections(tls_redis):
            observer.execute_command("CLIENT", "KILL", "ID", row["id"])


async def test_all_connections_use_tls(tls_redis: TlsRedis, cluster: GatewayCluster) -> None:
    """A request is answered, and every connection of gateway and worker uses the TLS port."""
    gateway, _ = await start_gateway_and_worker(cluster, tls_redis)
    assert serves(gateway, "hello")
    rows = connections(tls_redis)
    assert {row["name"].split(":")[0] for row in rows} == {"gateway", "worker"}
    assert {row["laddr"].rsplit(":", 1)[1] for row in rows} == {str(tls_redis.port)}


async def test_broken_connections_are_replaced(tls_redis: TlsRedis, cluster: GatewayCluster) -> None:
    """After all connections break during a request, they are replaced and the request gets its vector."""
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(**tls_redis.settings()),
        cluster.start_worker("simulated:base_ms=500,item_ms=0", **tls_redis.settings()),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    request = asyncio.create_task(asyncio.to_thread(serves, gateway, "in flight"))
    await wait_until(lambda: _claimed(tls_redis, cluster), "the worker has claimed the request")
    before = {row["id"] for row in connections(tls_redis)}
    cut_all(tls_redis)
    assert await request
    assert not before & {row["id"] for row in connections(tls_redis)}


def _claimed(tls_redis: TlsRedis, cluster: GatewayCluster) -> bool:
    with redis.Redis.from_url(tls_redis.server.url, protocol=2) as observer:
        summary: Any = observer.xpending(cluster.keys.lanes[0], "workers")
        return int(summary["pending"]) == 1


async def test_new_certificates_need_no_restart(tls_redis: TlsRedis, cluster: GatewayCluster) -> None:
    """New connections read the files again, so certificates of another authority need no restart."""
    gateway, _ = await start_gateway_and_worker(cluster, tls_redis)
    write_certificates(trustme.CA(), tls_redis.folder)
    options: list[str] = []
    with redis.Redis.from_url(tls_redis.server.url, protocol=2) as observer:
        for option, file in (("cert", "redis.pem"), ("key", "redis.key"), ("ca-cert", "ca.pem")):
            options += [f"tls-{option}-file", str(tls_redis.folder / file)]
        observer.execute_command("CONFIG", "SET", *options)
    cut_all(tls_redis)
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker again")
    assert serves(gateway, "after that")


@pytest.fixture
def run_queue(tls_redis: TlsRedis, monkeypatch: pytest.MonkeyPatch) -> RunQueue:
    """Runs `redbatch queue` with the TLS settings and overrides; returns exit code and stderr."""

    def run(**more: object) -> tuple[int, str]:
        for name in ("URL", "TLS_CA", "TLS_CERT", "TLS_KEY"):
            monkeypatch.delenv(f"REDBATCH_REDIS_{name}", raising=False)
        for name, value in tls_redis.variables("ops", **more).items():
            if value != "None":
                monkeypatch.setenv(name, value)
        result = CliRunner().invoke(app, ["queue", "--json"])
        return result.exit_code, result.stderr

    return run


def test_the_command_line_uses_tls(run_queue: RunQueue) -> None:
    """`redbatch queue` connects with the same TLS settings."""
    assert run_queue() == (0, "")


def test_an_untrusted_certificate_is_refused(run_queue: RunQueue, tmp_path: Path) -> None:
    """With another authority, or only those of the system, the command fails with a line that says so."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    for ca in (tmp_path / "other.pem", None):
        code, error = run_queue(redis_tls_ca=ca)
        assert code == 1
        assert re.fullmatch(
            r"redbatch: rediss://.*: There is no safe connection .* not trusted: .*certificate.*\n", error
        )


def test_a_certificate_for_another_name_is_refused(tls_redis: TlsRedis, run_queue: RunQueue) -> None:
    """A certificate for localhost is refused at 127.0.0.1."""
    code, error = run_queue(redis_url=tls_redis.url.replace("localhost", "127.0.0.1"))
    assert code == 1
    assert "IP address mismatch" in error


def test_a_client_without_a_certificate_is_refused(run_queue: RunQueue) -> None:
    """Redis refuses a client without a certificate, and the error line says why."""
    code, error = run_queue(redis_tls_cert=None, redis_tls_key=None)
    assert code == 1
    assert "There is no safe connection" in error
    assert "certificate required" in error


async def test_a_gateway_logs_an_untrusted_certificate(
    tls_redis: TlsRedis, cluster: GatewayCluster, tmp_path: Path
) -> None:
    """A gateway logs why the connection is not trusted, and connects once the file is correct."""
    valid_ca = (tls_redis.folder / "ca.pem").read_bytes()
    (tmp_path / "mine.pem").write_bytes(trustme.CA().cert_pem.bytes())
    gateway = await cluster.start_gateway(**tls_redis.settings(redis_tls_ca=tmp_path / "mine.pem"))
    await wait_until(lambda: bool(gateway.program.log_records("Redis is out of reach")), "the log has the error")
    assert "not trusted" in gateway.program.log_records("Redis is out of reach")[-1]["reason"]
    (tmp_path / "mine.pem").write_bytes(valid_ca)
    await wait_until(lambda: "redis" not in gateway.missing(), "the gateway is connected")
