"""The Redis pod as a process: the manifest's command with its file and users, and the manifest's probes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme

from redbatch.redis_users.passwords import new_credentials
from redbatch.up.local_redis import find_bundled, free_port
from tests.deploy.checks.secrets import generated_secrets
from tests.deploy.manifests import (
    RENDERED,
    Manifest,
    compose,
    named,
    objects,
    pod_of,
)
from tests.servers import Version, require, server_binary, skip
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

Secrets = Mapping[str, Mapping[str, str]]


def files_of(manifests: list[Manifest], volume: Manifest, secrets: Secrets) -> Mapping[str, str]:
    """Returns the files of a volume: of a Secret, of a ConfigMap, or none."""
    if "secret" in volume:
        return secrets[volume["secret"]["secretName"]]
    if "configMap" in volume:
        data: dict[str, str] = named(manifests, "ConfigMap", volume["configMap"]["name"])["data"]
        return data
    return {}


class Pod:
    """Simulates the pod of the StatefulSet: its mounts are folders named after the volumes, its port is a free one.

    Args:
        manifests: include its ConfigMap.
        folder: contains all its files.
        secrets: the content of the Secrets.
    """

    def __init__(self, manifests: list[Manifest], folder: Path, secrets: Secrets) -> None:
        self.port = free_port()
        workload = named(manifests, "StatefulSet", "redis")
        self._container: Any = pod_of(workload)["containers"][0]
        self._folder = folder
        self._cli = shutil.which("redis-cli", path=server_binary().parent) or str(find_bundled("redis-cli"))
        mounts = {each["mountPath"]: each for each in self._container["volumeMounts"]}
        self._folders = {path: folder / each["name"] for path, each in mounts.items()}
        files = {
            f"{path}/{name}": text
            for path, each in mounts.items()
            for volume in pod_of(workload)["volumes"]
            if volume["name"] == each["name"]
            for name, text in files_of(manifests, volume, secrets).items()
        }
        for place in self._folders.values():
            place.mkdir()
        for path, text in files.items():
            Path(self._localize(path)).write_text(self._localize(text), encoding="utf-8")
        config = files[self._container["command"][1]]
        data, users = (re.findall(rf"^{name} (.*)$", config, re.MULTILINE) for name in ("dir", "aclfile"))
        claims = [each["metadata"]["name"] for each in workload["spec"]["volumeClaimTemplates"]]
        assert [mounts[path] for path in data] == [{"name": name, "mountPath": data[0]} for name in claims]
        assert {*users} <= {*files}

    def _localize(self, text: str) -> str:
        """Returns a text with the pod's paths replaced by folders, and its port by the free one."""
        paths = "|".join(map(re.escape, sorted(self._folders, key=len, reverse=True)))
        return re.sub(
            rf"(?<![\w/])({paths})(?![\w-])",
            lambda found: str(self._folders[found[1]]),
            re.sub(r"(?<!\w)6379(?!\w)", str(self.port), text),  # not in the digest of a password
        )

    def passes(self, probe: str) -> bool:
        """Runs a probe of the kind `exec`; returns whether it passes."""
        words = [self._localize(word) for word in self._container[probe]["exec"]["command"]]
        words[-1] = words[-1].replace("redis-cli", f"{self._cli} -p {self.port}")
        return subprocess.run(words, check=False, capture_output=True, timeout=30).returncode == 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs the container."""
        words = [self._localize(word) for word in [*self._container["command"], *self._container["args"]]]
        own = [] if "--tls-port" in words else ["--port", str(self.port)]
        with (self._folder / "redis.log").open("wb") as log:
            process = subprocess.Popen([str(server_binary()), *words[1:], *own], stdout=log, env=os.environ)
        try:
            yield
            assert process.poll() is None, (self._folder / "redis.log").read_text(encoding="utf-8")
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def needs_redis_7(server_version: Version) -> None:
    """Skips the test on a Redis before 7.0, which the users need."""
    require("7.0", server_version)


@pytest.mark.usefixtures("needs_redis_7")
async def test_redis_runs_with_the_manifest_of_its_pod(tmp_path: Path) -> None:
    """The probes fail before Redis runs and pass then, and its settings are those of the manifest."""
    access = new_credentials()
    pod = Pod(objects(RENDERED.read_text(encoding="utf-8")), tmp_path, generated_secrets(access))
    assert not pod.passes("startupProbe")
    with pod.running():
        await wait_until(lambda: pod.passes("startupProbe"), "Redis runs", poll_s=0.1)
        assert pod.passes("readinessProbe")
        with redis.Redis(port=pod.port, username="gateway", password=access.passwords["gateway"], protocol=2) as client:
            found: Any = client.info("memory")
            assert (found["maxmemory"], found["maxmemory_policy"]) == (2800 * 2**20, "noeviction")
            assert client.info("persistence")["aof_enabled"]
    assert not pod.passes("readinessProbe")


@pytest.mark.usefixtures("needs_redis_7")
async def test_a_redis_without_the_probe_user_is_not_ready(tmp_path: Path) -> None:
    """The probe fails on NOAUTH or WRONGPASS, although redis-cli alone would exit with 0."""
    access = new_credentials()
    without = [line for line in access.users.splitlines() if not line.startswith("user probe")]
    users = "\n".join(without) + "\n"
    pod = Pod(objects(RENDERED.read_text(encoding="utf-8")), tmp_path, generated_secrets(replace(access, users=users)))
    with pod.running():

        def listens() -> bool:
            try:
                with redis.Redis(port=pod.port, username="ops", password=access.passwords["ops"], protocol=2) as client:
                    return bool(client.ping())
            except redis.ConnectionError:
                return False

        await wait_until(listens, "Redis runs", poll_s=0.1)
        assert not pod.passes("readinessProbe")


@pytest.mark.tls
@pytest.mark.usefixtures("needs_redis_7")
async def test_redis_runs_with_the_component_tls(tmp_path: Path) -> None:
    """The probes pass with a certificate of the authority and a password; a connection without TLS is refused."""
    kustomization = tmp_path / "kustomization"
    kustomization.mkdir()
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    certificate = {
        "ca.crt": authority.cert_pem,
        "tls.crt": issued.cert_chain_pems[0],
        "tls.key": issued.private_key_pem,
    }
    secrets = {
        **generated_secrets(new_credentials()),
        "redis-tls": {name: it.bytes().decode() for name, it in certificate.items()},
    }
    pod = Pod(objects(compose("gpu", ["tls"], kustomization)), tmp_path, secrets)
    with pod.running():
        try:
            await wait_until(lambda: pod.passes("startupProbe"), "Redis runs", poll_s=0.1)
        except AssertionError:
            if "Bad directive" in (tmp_path / "redis.log").read_text(encoding="utf-8"):
                skip("this redis-server was built without TLS")
            raise
        assert pod.passes("readinessProbe")
        with redis.Redis(port=pod.port, protocol=2) as clear, pytest.raises(redis.ConnectionError):
            clear.ping()
