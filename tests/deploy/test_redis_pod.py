"""Redis as its pod has it: the manifest's command with the file and the users, and the manifest's probes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import redis
import trustme

from redbatch.local_redis import bundled, free_port
from redbatch.redis_users.passwords import Access, new_access
from tests.deploy.manifests import (
    K8S,
    RENDERED,
    Manifest,
    compose,
    kustomize_is_missing,
    named,
    objects,
    pod_of,
)
from tests.servers import Version, require, server_binary, skip
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


class Pod:
    """Plays the pod of the StatefulSet: its mounts are folders, its port is a free one."""

    _PATHS: ClassVar = {
        "/run/secrets/redis-tls": "tls",
        "/run/secrets/redis": "users",
        "/etc/redis": "config",
        "/data": "data",
    }

    def __init__(self, manifests: list[Manifest], folder: Path, access: Access) -> None:
        self.port = free_port()
        self._container: Any = pod_of(named(manifests, "StatefulSet", "redis"))["containers"][0]
        self._folder = folder
        self._cli = shutil.which("redis-cli") or str(bundled("redis-cli"))
        for mount in self._PATHS.values():
            (folder / mount).mkdir()
        text = self._played((K8S / "base" / "redis.conf").read_text(encoding="utf-8"))
        (folder / "config" / "redis.conf").write_text(text, encoding="utf-8")
        self.users = folder / "users" / "users.acl"
        self.users.write_text(access.users, encoding="utf-8")

    def _played(self, text: str) -> str:
        """Returns a text with the pod's paths replaced by folders."""
        for path, name in self._PATHS.items():
            text = text.replace(path, str(self._folder / name))
        return text.replace("6379", str(self.port))

    def passes(self, probe: str) -> bool:
        """Runs a probe of the kind `exec`; returns whether it would pass."""
        words = [self._played(word) for word in self._container[probe]["exec"]["command"]]
        words[-1] = words[-1].replace("redis-cli", f"{self._cli} -p {self.port}")
        return subprocess.run(words, check=False, capture_output=True, timeout=10).returncode == 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs the container."""
        words = [self._played(word) for word in [*self._container["command"], *self._container["args"]]]
        own = [] if "--tls-port" in words else ["--port", str(self.port)]
        with (self._folder / "redis.log").open("wb") as log:
            process = subprocess.Popen([str(server_binary()), *words[1:], *own], stdout=log, env=os.environ)
        try:
            yield
            assert process.poll() is None, (self._folder / "redis.log").read_text(encoding="utf-8")
        finally:
            process.terminate()
            process.wait(10)


@pytest.fixture
def seven(server_version: Version) -> None:
    """The users need Redis 7."""
    require("7.0", server_version)


@pytest.mark.usefixtures("seven")
async def test_redis_runs_as_its_pod_says(tmp_path: Path) -> None:
    """Its probes fail before it is there, pass then, and its settings are those of the manifest."""
    access = new_access()
    pod = Pod(objects(RENDERED.read_text(encoding="utf-8")), tmp_path, access)
    assert not pod.passes("startupProbe")
    with pod.running():
        await wait_until(lambda: pod.passes("startupProbe"), "Redis is there", poll_s=0.1)
        assert pod.passes("readinessProbe")
        with redis.Redis(port=pod.port, username="gateway", password=access.passwords["gateway"], protocol=2) as client:
            found: Any = client.info("memory")
            assert (found["maxmemory"], found["maxmemory_policy"]) == (2800 * 2**20, "noeviction")
            assert client.info("persistence")["aof_enabled"]
    assert not pod.passes("readinessProbe")


@pytest.mark.usefixtures("seven")
async def test_a_redis_that_lets_the_probe_in_for_nothing_else_is_not_ready(tmp_path: Path) -> None:
    """redis-cli alone would exit with 0 where it is told NOAUTH or WRONGPASS."""
    access = new_access()
    pod = Pod(objects(RENDERED.read_text(encoding="utf-8")), tmp_path, access)
    without = [line for line in access.users.splitlines() if not line.startswith("user probe")]
    pod.users.write_text("\n".join(without) + "\n", encoding="utf-8")
    with pod.running():

        def listens() -> bool:
            try:
                with redis.Redis(port=pod.port, username="ops", password=access.passwords["ops"], protocol=2) as client:
                    return bool(client.ping())
            except redis.ConnectionError:
                return False

        await wait_until(listens, "Redis is there", poll_s=0.1)
        assert not pod.passes("readinessProbe")


@pytest.mark.tls
@pytest.mark.usefixtures("seven")
async def test_redis_runs_as_the_component_for_tls_says(tmp_path: Path) -> None:
    """In the clear nobody is heard; with a certificate of its authority and a password one is."""
    if kustomize_is_missing():
        pytest.skip(kustomize_is_missing())
    kustomization = tmp_path / "kustomization"
    kustomization.mkdir()
    access, authority = new_access(), trustme.CA()
    pod = Pod(objects(compose("gpu", ["tls"], kustomization)), tmp_path, access)
    made = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "tls" / "ca.crt")
    made.cert_chain_pems[0].write_to_path(tmp_path / "tls" / "tls.crt")
    made.private_key_pem.write_to_path(tmp_path / "tls" / "tls.key")
    with pod.running():
        try:
            await wait_until(lambda: pod.passes("startupProbe"), "Redis is there", poll_s=0.1)
        except AssertionError:
            if "Bad directive" in (tmp_path / "redis.log").read_text(encoding="utf-8"):
                skip("this redis-server was built without TLS")
            raise
        assert pod.passes("readinessProbe")
        with redis.Redis(port=pod.port, protocol=2) as clear, pytest.raises(redis.ConnectionError):
            clear.ping()
