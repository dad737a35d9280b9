"""The pods of k8s/components/redis-sentinel as processes: the script of the manifest, its files, users and secrets."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis

from redbatch.redis_users.passwords import new_credentials, pods_with_sentinels
from redbatch.up.local_redis import find_bundled, free_port
from shared.errors import RedisUnreachableError
from shared.process.parent_death import wrap_command
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.deploy.checks.secrets import generated_secrets
from tests.deploy.manifests import SENTINEL, compose, named, objects, pod_of
from tests.servers import Version, require, server_binary
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]

ADDRESS = pods_with_sentinels("redbatch")
NAMES = (
    ('"redis-$number.$domain"', '"127.0.0.1$number"'),
    ('"redis-${HOSTNAME##*-}.$domain"', '"127.0.0.1${HOSTNAME##*-}"'),
    ("redis-0.$domain", "127.0.0.10"),
    ('*".$domain"', "127.*"),
)
"""Names of pods in the script, and the addresses that stand for them: no DNS knows the names here."""


FOLDERS = ("/data", "/tmp", "/etc/redis", "/run/secrets/redis")  # noqa: S108 - paths in a pod
"""Mounts; the secret redis-peers is beside redis."""


class Pods:
    """Three simulated pods, whose mounts are folders."""

    def __init__(self, folder: Path) -> None:
        self.access = new_credentials(None, ADDRESS.users)
        self.ports = {"6379": str(free_port()), "26379": str(free_port())}
        self.secrets = generated_secrets(self.access, ADDRESS)
        self._folder = folder
        (folder / "kustomization").mkdir()
        manifests = objects(compose("gpu", ["redis-sentinel"], folder / "kustomization"))
        pod = pod_of(named(manifests, "StatefulSet", "redis"))
        config = next(each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each)
        self._containers: Any = {each["name"]: each for each in pod["containers"]}
        self._config: dict[str, str] = named(manifests, "ConfigMap", config)["data"]
        self._processes: dict[tuple[int, str], subprocess.Popen[bytes]] = {}
        (folder / "bin").mkdir()
        (folder / "bin" / "redis-server").symlink_to(server_binary())
        cli = shutil.which("redis-cli", path=server_binary().parent) or str(find_bundled("redis-cli"))
        (folder / "bin" / "redis-cli").symlink_to(cli)
        for number in range(3):
            self._write_files(number)

    def _write_files(self, number: int) -> None:
        home = self._folder / f"pod-{number}"
        files = {f"/etc/redis/{name}": text for name, text in self._config.items()}
        files |= {f"/run/secrets/redis/{name}": text for name, text in self.secrets["redis-users"].items()}
        files |= {f"/run/secrets/redis-peers/{name}": text for name, text in self.secrets["redis-peers"].items()}
        for path in (*FOLDERS, "/run/secrets/redis-peers"):
            (home / path[1:]).mkdir(parents=True)
        for path, text in files.items():
            (home / path[1:]).write_text(self._localize(text, number), encoding="utf-8")

    def _localize(self, text: str, number: int) -> str:
        home = self._folder / f"pod-{number}"
        if text.startswith("#!"):
            for name, address in NAMES:
                assert name in text, name
                text = text.replace(name, address)
            text = text.replace("port 26379\n", f"port 26379\nbind 127.0.0.1{number}\n")
        elif text.startswith("# Redis for Redbatch"):
            text += f"bind 127.0.0.1{number}\nport 6379\n"
        for path in FOLDERS:
            text = text.replace(f" {path}", f" {home}{path}").replace(f"={path}", f"={home}{path}")
            text = text.replace(f">{path}", f">{home}{path}")
        words = text.replace("26379", self.ports["26379"]).split("\n")
        return "\n".join(each if "#" in each else each.replace("6379", self.ports["6379"]) for each in words)

    def start(self, number: int) -> None:
        """Starts both containers of a pod."""
        path = f"{self._folder / 'bin'}:{os.environ['PATH']}"
        env = {"PATH": path, "HOSTNAME": f"redis-{number}", "POD_NAMESPACE": "redbatch"}
        for name, container in self._containers.items():
            words: list[str] = [*container["command"], *container.get("args", [])]
            words[1] = f"{self._folder}/pod-{number}{words[1]}"
            with (self._folder / f"{name}-{number}.log").open("ab") as log:
                self._processes[number, name] = subprocess.Popen(
                    wrap_command(words, signal.SIGKILL), env=env, stdout=log, stderr=log
                )

    def kill(self, number: int) -> None:
        """Kills both containers of a pod; its volume stays."""
        for name in self._containers:
            process = self._processes.pop((number, name), None)
            if process is not None:
                process.kill()
                process.wait(5)

    def ask(self, number: int, *command: str, of: str = "redis") -> Any:  # noqa: ANN401 - depends on the command
        """Sends a command to one container, as the user `ops` to Redis; None if it does not answer."""
        login = "" if of == SENTINEL else f"ops:{self.access.passwords['ops']}@"
        port = self.ports["26379" if of == SENTINEL else "6379"]
        url = f"redis://{login}127.0.0.1{number}:{port}/0"
        try:
            with redis.Redis.from_url(url, protocol=2, socket_timeout=2) as raw:
                return raw.execute_command(*command)
        except redis.RedisError:
            return None

    def roles(self) -> list[str]:
        """Returns the role of each Redis, of a replica only if it is in step."""
        infos = [self.ask(number, "INFO", "replication") or {} for number in range(3)]
        return [str(each.get("role")) if each.get("master_link_status", "up") == "up" else "" for each in infos]

    def joined(self) -> bool:
        """Whether each sentinel knows the others and both replicas."""
        found = [self.ask(number, "SENTINEL", "MASTER", "redbatch", of=SENTINEL) for number in range(3)]
        fields = [dict(zip(each[::2], each[1::2], strict=True)) if each else {} for each in found]
        known = [(each.get(b"num-slaves"), each.get(b"num-other-sentinels")) for each in fields]
        return known == [(b"2", b"2")] * 3

    def url(self) -> str:
        """The URL of a gateway."""
        url = self.secrets["gateway-redis"]["url"]
        for number in range(3):
            url = url.replace(f"redis-{number}.redis-pods.redbatch.svc", f"127.0.0.1{number}")
        return url.replace(":26379", f":{self.ports['26379']}")


@pytest_asyncio.fixture
async def pods(server_version: Version, tmp_path: Path) -> AsyncIterator[Pods]:
    """Yields the pods, started at once."""
    require("7.0", server_version)
    pods = Pods(tmp_path)
    try:
        for number in range(3):
            pods.start(number)
        await wait_until(pods.joined, "the sentinels know each other", timeout_s=30)
        await wait_until(lambda: sorted(pods.roles()) == ["master", "slave", "slave"], "replicas", timeout_s=30)
        yield pods
    finally:
        for number in range(3):
            pods.kill(number)


async def test_a_pod_dies_and_comes_back_and_then_all(pods: Pods, queue_name: str) -> None:
    """A replica takes over, and a gateway finds it; who comes back follows it, also after an outage of all."""
    assert pods.roles()[0] == "master"
    queue = QueueConnections(QueueSettings(redis_url=pods.url()), queue_name, "gateway")
    connection = queue.connection("any")
    assert await connection.call("SET", queue.keys.epoch, "1") == b"OK"
    pods.kill(0)

    async def has_moved() -> bool:
        try:
            return bool(await connection.call("GET", queue.keys.epoch) == b"1")
        except RedisUnreachableError:
            return False

    await wait_until(has_moved, "the gateway finds the new master", timeout_s=30, poll_s=0.2)
    assert not connection.server.startswith("127.0.0.10:")
    pods.start(0)
    await wait_until(lambda: pods.roles()[0] == "slave", "the old master follows the new one", timeout_s=30)
    before = pods.roles()
    for number in range(3):
        pods.kill(number)
    for number in range(3):
        pods.start(number)
    await wait_until(lambda: pods.roles() == before, "the same is the master", timeout_s=30)
    await wait_until(has_moved, "the gateway finds the master", timeout_s=30, poll_s=0.2)
    await queue.close()
