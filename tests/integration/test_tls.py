"""TLS between the cluster and Redis, with certificates that the suite makes: on a redis-server that can (Debian's)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
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
from tests.integration.gateway.gateway_cluster import Gateway, House, digits, digits_of, lines_of
from tests.processes import Processes, Program
from tests.servers import Server, skip
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.tls]

Show = Callable[..., tuple[int, str]]


@dataclass
class Safe:
    """A Redis that speaks TLS, and asks who is there; the observer looks on without."""

    server: Server
    port: int
    folder: Path

    @property
    def url(self) -> str:
        """For those who speak TLS."""
        return re.sub(r"redis://(.*?)127.0.0.1:\d+", rf"rediss://\g<1>localhost:{self.port}", self.server.url)

    def settings(self, **more: object) -> dict[str, Any]:
        """Returns the settings of a process that has a certificate."""
        names = {"ca": "ca.pem", "cert": "client.pem", "key": "client.key"}
        files = {f"redis_tls_{name}": self.folder / file for name, file in names.items()}
        return {"redis_url": self.url, **files, **more}

    def variables(self, user: str, **more: object) -> dict[str, str]:
        """Returns the same as variables, for a user."""
        named = {f"REDBATCH_{name.upper()}": str(value) for name, value in self.settings(**more).items()}
        return {**named, "REDBATCH_REDIS_URL": as_user(str(named["REDBATCH_REDIS_URL"]), user)}


def write(ca: trustme.CA, folder: Path) -> None:
    """Writes what an authority gives: its own certificate, that of Redis, and that of a client."""
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for name, host in (("redis", "localhost"), ("client", "client.redbatch")):
        made = ca.issue_cert(host)
        made.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        made.private_key_pem.write_to_path(folder / f"{name}.key")


@pytest.fixture
def safe(tmp_path: Path) -> Iterator[Safe]:
    """The server, where there is one that can."""
    write(trustme.CA(), tmp_path)
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
        yield Safe(server, port, tmp_path)


@pytest_asyncio.fixture
async def house(safe: Safe, queue_name: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """Processes of the test's own, around a queue in that Redis."""
    async with Processes(tmp_path_factory.mktemp("safe")) as processes:
        house = House(processes, safe.server.url, queue_name)
        yield house
    house.check()


async def started(house: House, safe: Safe) -> tuple[Gateway, Program]:
    """Starts a gateway and a worker, and waits until one sees the other."""
    gateway, worker = await asyncio.gather(house.gateway(**safe.settings()), house.worker(**safe.settings()))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway, worker


def serves(gateway: Gateway, text: str) -> bool:
    """Whether a text gets its vector."""
    answer = gateway.embed({"text": text})
    return answer.status_code == 200 and digits(answer.json()["embedding"]) == digits_of(text)


def connections(safe: Safe) -> list[dict[str, Any]]:
    """Returns the connections of gateways and workers."""
    with redis.Redis.from_url(safe.server.url, protocol=2) as observer:
        rows: Any = observer.client_list()
    return [row for row in rows if row["name"].startswith(("gateway:", "worker:"))]


def cut_all(safe: Safe) -> None:
    """Has Redis close all of these."""
    with redis.Redis.from_url(safe.server.url, protocol=2) as observer:
        for row in connections(safe):
            observer.execute_command("CLIENT", "KILL", "ID", row["id"])


async def test_a_request_goes_through_tls_all_the_way(safe: Safe, house: House) -> None:
    """From a gateway to a worker and back; none of their connections is without it."""
    gateway, _ = await started(house, safe)
    assert serves(gateway, "hello")
    found = connections(safe)
    assert {row["name"].split(":")[0] for row in found} == {"gateway", "worker"}
    assert {row["laddr"].rsplit(":", 1)[1] for row in found} == {str(safe.port)}


async def test_broken_connections_are_made_again(safe: Safe, house: House) -> None:
    """While a request is in flight, too: it gets its vector."""
    gateway, _ = await asyncio.gather(
        house.gateway(**safe.settings()), house.worker("simulated:base_ms=500,item_ms=0", **safe.settings())
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    asking = asyncio.create_task(asyncio.to_thread(serves, gateway, "in flight"))
    await wait_until(lambda: _claimed(safe, house), "the worker has it")
    before = {row["id"] for row in connections(safe)}
    cut_all(safe)
    assert await asking
    assert not before & {row["id"] for row in connections(safe)}


def _claimed(safe: Safe, house: House) -> bool:
    with redis.Redis.from_url(safe.server.url, protocol=2) as observer:
        summary: Any = observer.xpending(house.keys.lanes[0], "workers")
        return int(summary["pending"]) == 1


async def test_new_certificates_need_no_restart(safe: Safe, house: House) -> None:
    """Of another authority, under the same names: new connections read the files again."""
    gateway, _ = await started(house, safe)
    write(trustme.CA(), safe.folder)
    words: list[str] = []
    with redis.Redis.from_url(safe.server.url, protocol=2) as observer:
        for option, file in (("cert", "redis.pem"), ("key", "redis.key"), ("ca-cert", "ca.pem")):
            words += [f"tls-{option}-file", str(safe.folder / file)]
        observer.execute_command("CONFIG", "SET", *words)
    cut_all(safe)
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker again")
    assert serves(gateway, "after that")


@pytest.fixture
def queue_shown(safe: Safe, monkeypatch: pytest.MonkeyPatch) -> Show:
    """Runs `redbatch queue` with the settings for TLS, some of them other ones."""

    def run(**more: object) -> tuple[int, str]:
        for name in ("URL", "TLS_CA", "TLS_CERT", "TLS_KEY"):
            monkeypatch.delenv(f"REDBATCH_REDIS_{name}", raising=False)
        for name, value in safe.variables("ops", **more).items():
            if value != "None":
                monkeypatch.setenv(name, value)
        result = CliRunner().invoke(app, ["queue", "--json"])
        return result.exit_code, result.stderr

    return run


def test_the_command_line_speaks_it_too(queue_shown: Show) -> None:
    """By the same settings."""
    assert queue_shown() == (0, "")


def test_a_redis_that_nobody_vouches_for_is_refused(queue_shown: Show, tmp_path: Path) -> None:
    """By another authority, or by none but those of the system: in a line that says so."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    for ca in (tmp_path / "other.pem", None):
        code, said = queue_shown(redis_tls_ca=ca)
        assert code == 1
        assert re.fullmatch(
            r"redbatch: rediss://.*: There is no safe connection .* not trusted: .*certificate.*\n", said
        )


def test_a_redis_under_another_name_is_refused(safe: Safe, queue_shown: Show) -> None:
    """Its certificate is for localhost, which 127.0.0.1 is not."""
    code, said = queue_shown(redis_url=safe.url.replace("localhost", "127.0.0.1"))
    assert code == 1
    assert "IP address mismatch" in said


def test_who_shows_no_certificate_is_refused(queue_shown: Show) -> None:
    """By Redis, and the line says why."""
    code, said = queue_shown(redis_tls_cert=None, redis_tls_key=None)
    assert code == 1
    assert "There is no safe connection" in said
    assert "certificate required" in said


async def test_a_gateway_says_what_is_wrong(safe: Safe, house: House, tmp_path: Path) -> None:
    """In its log; it goes on, and serves once the file is right."""
    right = (safe.folder / "ca.pem").read_bytes()
    (tmp_path / "mine.pem").write_bytes(trustme.CA().cert_pem.bytes())
    gateway = await house.gateway(**safe.settings(redis_tls_ca=tmp_path / "mine.pem"))
    await wait_until(lambda: bool(gateway.program.logged("Redis is out of reach")), "it says so")
    assert "not trusted" in lines_of(gateway.program)[-1]["reason"]
    (tmp_path / "mine.pem").write_bytes(right)
    await wait_until(lambda: "redis" not in gateway.missing(), "it is connected")
