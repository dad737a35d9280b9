"""The images: what their file says, and what it installs, in an environment as fresh as theirs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from huggingface_hub.cli import download, hf

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.local_redis import LocalRedis, free_port
from tests import plain_http
from tests.deploy import dockerfile
from tests.deploy.dockerfile import ROOT, chain, environment, install, stages
from tests.waiting import wait_until

IMAGES = ("gateway", "worker-cpu", "worker-cuda")
START_S, STOP_S = 90.0, 30.0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is built once for all images: the wheel. Returns where that is."""
    root = tmp_path_factory.mktemp("image")
    (root / "wheel").mkdir()
    install("wheel", root / "wheel", places(root, "wheel"))
    return root


def places(root: Path, name: str) -> dict[str, str]:
    """Returns where this machine has what an image has under /opt."""
    path = f"{Path(shutil.which('python3.11') or shutil.which('python3') or '').parent}:/usr/bin:/bin"
    own = {"HOME": str(root), "PATH": path.removeprefix(f"{ROOT}/.venv/bin:")}
    if version("torch").endswith("+cpu"):  # so pip finds builds for CPUs where it finds all else
        own["TORCH_INDEX"] = ""
    pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_") or key.endswith("_proxy")}
    shared = {"WHEELS": str(root / "wheels"), "MODELS": str(root / "models")}
    return pip | own | shared | {"VENV": str(root / f"{name}-environment")}


def imports(python: Path, module: str) -> bool:
    """Whether an environment has a module."""
    return subprocess.run([python, "-I", "-c", f"import {module}"], check=False, capture_output=True).returncode == 0


@contextmanager
def running(root: Path, name: str, command: list[str], variables: dict[str, str]) -> Iterator[Callable[[], bool]]:
    """Runs what an image runs, for as long as the block takes. Gives what asks for its health, as the image does."""
    python = root / f"{name}-environment" / "bin" / "python"
    port = free_port()
    env = variables | {"PATH": "/usr/bin:/bin", "HOME": str(root), "REDBATCH_ADMIN_PORT": str(port)}
    (check,) = stages()[name].values("HEALTHCHECK")
    script = re.findall(r'"([^"]+)"', check)[2].replace("/opt", str(ROOT / "docker"))

    def healthy() -> bool:
        assert process.poll() is None, log.read_text()
        asked = [[python, "-I", script, str(port), path] for path in ("/livez", "/readyz")]
        return all(subprocess.run(each, check=False, capture_output=True).returncode == 0 for each in asked)

    log = root / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen([python, "-P", "-m", "redbatch", *command], env=env, stdout=out, stderr=out)
    try:
        yield healthy
    finally:
        process.terminate()
        process.wait(STOP_S)
    assert process.returncode == 0, log.read_text()


@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.model
@pytest.mark.timeout(600)
@pytest.mark.long
async def test_what_the_images_install_runs(built: Path) -> None:
    """A gateway without torch, and a worker with it and its model, which asks nobody for anything."""
    install("gateway-environment", built / "wheel", places(built, "gateway"))
    install("worker-cpu-model", built / "wheel", places(built, "worker"))
    gateway, worker = (built / f"{name}-environment" / "bin" / "python" for name in ("gateway", "worker"))
    assert imports(gateway, "fastapi")
    assert not imports(gateway, "torch")
    assert not imports(gateway, "sentence_transformers")
    assert imports(worker, "torch")
    assert not imports(worker, "pytest")
    own = {key: value for key, value in environment("worker-cpu").items() if key.startswith(("REDBATCH", "HF"))}
    port = free_port()
    with LocalRedis() as redis:
        url = {"REDBATCH_REDIS_URL": redis.url, "REDBATCH_ADMIN_HOST": "127.0.0.1"}
        with (
            running(built, "worker", ["worker"], own | url) as worker_healthy,
            running(built, "gateway", ["gateway", "--host", "127.0.0.1", "--port", str(port)], url) as gateway_healthy,
        ):
            await wait_until(worker_healthy, "the worker is ready", timeout_s=START_S, poll_s=0.2)
            await wait_until(gateway_healthy, "the gateway is ready", timeout_s=START_S, poll_s=0.2)
            async with plain_http.client(timeout=START_S) as client:
                answer = await client.post(f"http://127.0.0.1:{port}/embed", json={"text": "hello"})
    assert answer.status_code == httpx.codes.OK, answer.text
    assert len(answer.json()["embedding"]) == 384


def test_the_file_is_clean() -> None:
    """By hadolint, without an exception."""
    ran = subprocess.run(
        [Path(sys.executable).parent / "hadolint", dockerfile.PATH], check=False, capture_output=True, text=True
    )
    assert ran.stdout + ran.stderr == ""


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_no_rights(name: str) -> None:
    """A user by number, an init in front, a check of its health, and a home in the one place where it may write."""
    every = [instruction for stage in chain(name) for instruction in stage.instructions]
    assert [rest for word, rest in every if word == "USER"] == ["65532:65532"]
    assert [rest for word, rest in every if word == "ENTRYPOINT"] == ['["tini", "--", "redbatch"]']
    (check,) = [rest for word, rest in every if word == "HEALTHCHECK"]
    settings = (GatewaySettings if name == "gateway" else WorkerSettings)()
    assert re.findall(r'"([^"]+)"', check)[-1] == str(settings.admin_port)
    assert str(settings.admin_port) in " ".join(rest for word, rest in every if word == "EXPOSE").split()
    assert environment(name)["HOME"] == "/tmp"  # noqa: S108 - the image's


def test_bases_and_packages_are_pinned() -> None:
    """The base by version, and by digest for who gives one; Debian's packages and torch by version, others by hash."""
    text = dockerfile.PATH.read_text(encoding="utf-8")
    assert re.search(r"^ARG BASE=python:3\.11\.\d+-slim-bookworm$", text, re.MULTILINE)
    assert re.search(r"^ARG BASE_DIGEST=$", text, re.MULTILINE)
    assert stages()["base"].base == "${BASE}${BASE_DIGEST:+@${BASE_DIGEST}}"
    for stage in stages().values():
        for line in stage.values("RUN"):
            installs = re.findall(r"pip\" install [^&]*", line)
            assert all("--require-hashes" in each or "torch.txt" in each or "--no-index" in each for each in installs)
            for packages in re.findall(r"apt-get install ([^&]*)", line):
                assert all("=" in each for each in packages.split() if not each.startswith("--")), packages


def test_workers_are_offline() -> None:
    """What is not baked into the image is not asked for."""
    for name in ("worker-cpu", "worker-cuda"):
        assert environment(name)["HF_HUB_OFFLINE"] == "1"
        assert environment(name)["HF_HOME"] == environment(name)["MODELS"]


def test_what_is_copied_is_sent() -> None:
    """The context holds what the file asks for."""
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"]
    for stage in stages().values():
        for copied in stage.values("COPY"):
            if not copied.startswith("--from"):
                for source in copied.split()[:-1]:
                    assert any(source == each or source.startswith(f"{each}/") for each in sent), source
                    assert (ROOT / source).exists()


def test_a_model_of_the_hub_is_baked_in_without_pickles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line means what it says: all files of the model but those that are left out."""
    asked: dict[str, object] = {}

    def snapshot(**of: object) -> str:
        asked.update(of)
        return "/models"

    script = (ROOT / "docker" / "bake.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(r'/bin/hf" (download .*)', script)
    monkeypatch.setattr(download, "snapshot_download", snapshot)
    words = [{"$1": "org/model", "$2": "v1"}.get(each, each) for each in shlex.split(line)]
    result = CliRunner().invoke(hf.app, words)
    assert result.exit_code == 0, result.output
    assert (asked["repo_id"], asked["revision"], asked["allow_patterns"]) == ("org/model", "v1", None)
    assert asked["ignore_patterns"] == ["*.bin", "*.pt", "*.h5", "*.msgpack", "*.onnx*"]
