"""The images: the rules of the Dockerfile, and its installations in fresh environments."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from click.testing import CliRunner
from huggingface_hub.cli import download, hf

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.up.local_redis import LocalRedis, free_port
from tests import plain_http
from tests.deploy import dockerfile
from tests.deploy.dockerfile import ROOT, chain, environment, install, stages
from tests.waiting import wait_until

IMAGES = ("gateway", "worker-cpu", "worker-cuda")
IMAGE_OF = {"gateway": "gateway", "worker": "worker-cpu"}
START_S, STOP_S = 90.0, 30.0


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """Builds the wheel for all images once. Yields its folder, which all users may read, as in an image."""
    with TemporaryDirectory(prefix="redbatch-images-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "wheel").mkdir()
        install("wheel", root / "wheel", places(root, "wheel"))
        yield root


def places(root: Path, name: str) -> dict[str, str]:
    """Returns the paths on this machine that replace those under /opt in an image."""
    path = f"{Path(shutil.which('python3.11') or shutil.which('python3') or '').parent}:/usr/bin:/bin"
    own = {"HOME": str(root), "PATH": path.removeprefix(f"{ROOT}/.venv/bin:")}
    pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_") or key.endswith("_proxy")}
    if version("torch").endswith("+cpu"):  # then pip finds CPU builds in its default index
        own["TORCH_INDEX"] = ""
    if name == "cuda":  # packages locked by hash come from another index
        pip = {key: value for key, value in pip.items() if key != "PIP_FIND_LINKS"} | {"PIP_CONFIG_FILE": os.devnull}
    shared = {"WHEELS": str(root / "wheels"), "MODELS": str(root / "models")}
    return pip | own | shared | {"VENV": str(root / f"{name}-environment")}


def imports(python: Path, module: str) -> bool:
    """Returns whether an environment can import a module."""
    return subprocess.run([python, "-I", "-c", f"import {module}"], check=False, capture_output=True).returncode == 0


def words(name: str, instruction: str) -> list[str]:
    """Returns the words of an image's CMD or HEALTHCHECK."""
    (rest,) = [each for stage in chain(name) for each in stage.values(instruction)]
    found: list[str] = json.loads(rest[rest.index("[") :])
    return found


def confined(command: list[str], root: Path, home: Path) -> list[str]:
    """Returns a command that runs like in a container: without a user name or privileges, on read-only files.

    Only its home is writable. Without root the command runs unconfined as the current user. If other users cannot read
    the folder of Python, the command keeps root's user id, but has no privileges.
    """
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        return command
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && mount -t tmpfs -o mode=1777,noexec tmpfs "$1"'
    alone = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{script} && shift 1 && exec "$@"']
    is_reached = all(each.stat().st_mode & stat.S_IXOTH for each in Path(sys.executable).resolve().parents)
    user = ["--reuid=65532", "--regid=65532", "--clear-groups"] if is_reached else []
    rights = ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    return [*alone, str(root), str(home), "setpriv", *user, *rights, *command]


@contextmanager
def running(root: Path, name: str, variables: dict[str, str]) -> Iterator[Callable[[], bool]]:
    """Runs the command of an image until the end of the block. Yields a function that runs its health check."""
    binaries, home, image = root / f"{name}-environment" / "bin", root / f"{name}-home", IMAGE_OF[name]
    home.mkdir()
    env = environment(image) | variables
    env |= {"PATH": f"{binaries}:/usr/bin:/bin", "HOME": str(home), "REDBATCH_ADMIN_PORT": str(free_port())}
    env = {key: value for key, value in env.items() if key.startswith(("REDBATCH", "HF", "PATH", "HOME", "PYTHON"))}
    check = [each.replace("/opt/", f"{ROOT}/docker/") for each in words(image, "HEALTHCHECK")]

    def healthy() -> bool:
        assert process.poll() is None, log.read_text()
        inside = ["nsenter", "--mount", f"--target={process.pid}"] if confined(["a"], root, home) != ["a"] else []
        return subprocess.run([*inside, *check], check=False, capture_output=True, env=env).returncode == 0

    log = root / f"{name}.log"
    command = confined(["redbatch", *words(image, "CMD")], root, home)
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=home)
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
async def test_installed_images_serve_a_request(built: Path) -> None:
    """A gateway without torch and an offline worker with torch and its model embed a text.

    They run with the commands of the images like in containers, and pass the health checks.
    """
    install("gateway-environment", built / "wheel", places(built, "gateway"))
    install("worker-cpu-model", built / "wheel", places(built, "worker"))
    gateway, worker = (built / f"{name}-environment" / "bin" / "python" for name in ("gateway", "worker"))
    assert imports(gateway, "fastapi")
    assert not imports(gateway, "torch")
    assert not imports(gateway, "sentence_transformers")
    assert imports(worker, "torch")
    assert not imports(worker, "pytest")
    port = free_port()
    with LocalRedis() as redis:
        own = {"REDBATCH_REDIS_URL": redis.url, "REDBATCH_ADMIN_HOST": "127.0.0.1", "REDBATCH_HOST": "127.0.0.1"}
        own |= {"REDBATCH_PORT": str(port), "HF_HOME": str(built / "models")}
        with running(built, "worker", own) as worker_healthy, running(built, "gateway", own) as gateway_healthy:
            await wait_until(worker_healthy, "the worker is ready", timeout_s=START_S, poll_s=0.2)
            await wait_until(gateway_healthy, "the gateway is ready", timeout_s=START_S, poll_s=0.2)
            async with plain_http.client(timeout=START_S) as client:
                answer = await client.post(f"http://127.0.0.1:{port}/embed", json={"text": "hello"})
    assert answer.status_code == httpx.codes.OK, answer.text
    assert len(answer.json()["embedding"]) == 384


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.long
def test_the_cuda_image_installs_torch_with_cuda(built: Path) -> None:
    """The packages for CUDA install by hash and are consistent; without a GPU torch reports that none is available."""
    install("worker-cuda-environment", built / "wheel", places(built, "cuda"))
    python = built / "cuda-environment" / "bin" / "python"
    script = "import torch; print(torch.version.cuda, torch.cuda.is_available(), torch.ones(2).sum().item())"
    ran = subprocess.run([python, "-I", "-c", script], check=True, capture_output=True, text=True)
    assert re.fullmatch(r"13\.\d+ (True|False) 2.0\n", ran.stdout)
    checked = subprocess.run([python, "-m", "pip", "check"], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_there_is_one_version_of_torch() -> None:
    """The pinned torch for CPUs and the locked torch for GPUs have the same version."""
    pinned = (ROOT / "requirements" / "torch.txt").read_text(encoding="utf-8").strip()
    locked = (ROOT / "requirements" / "cuda.lock").read_text(encoding="utf-8")
    assert re.findall(r"^torch==\S+", locked, re.MULTILINE) == [pinned]


def test_the_file_is_clean() -> None:
    """Hadolint finds no fault in the Dockerfile, without exceptions."""
    ran = subprocess.run(
        [Path(sys.executable).parent / "hadolint", dockerfile.PATH], check=False, capture_output=True, text=True
    )
    assert ran.stdout + ran.stderr == ""


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_no_privileges(name: str) -> None:
    """An image has a numeric user, an init, a health check, and a home in the only writable folder."""
    every = [instruction for stage in chain(name) for instruction in stage.instructions]
    assert [rest for word, rest in every if word == "USER"] == ["65532:65532"]
    assert [rest for word, rest in every if word == "ENTRYPOINT"] == ['["tini", "--", "redbatch"]']
    (check,) = [rest for word, rest in every if word == "HEALTHCHECK"]
    settings = (GatewaySettings if name == "gateway" else WorkerSettings)()
    first = [] if name == "gateway" else ["/readyz"]  # with Redis: no network may lead there
    assert json.loads(check.partition("CMD ")[2]) == ["python", "-I", "/opt/healthcheck.py", *first]
    assert environment(name)["REDBATCH_ADMIN_PORT"] == str(settings.admin_port)
    assert str(settings.admin_port) in " ".join(rest for word, rest in every if word == "EXPOSE").split()
    assert environment(name)["HOME"] == "/tmp"  # noqa: S108 - the image's


def test_bases_and_packages_are_pinned() -> None:
    """The base is pinned by version and optionally by digest, Debian packages by version, Python packages by hash.

    Only torch for CPUs is pinned by version; it is installed last, without dependencies.
    """
    text = dockerfile.PATH.read_text(encoding="utf-8")
    assert re.search(r"^ARG BASE=python:3\.11\.\d+-slim-bookworm$", text, re.MULTILINE)
    assert re.search(r"^ARG BASE_DIGEST=$", text, re.MULTILINE)
    assert stages()["base"].base == "${BASE}${BASE_DIGEST:+@${BASE_DIGEST}}"
    for stage in stages().values():
        for line in stage.values("RUN"):
            installs = re.findall(r"pip\" install [^&]*", line)
            hashed = ["--no-deps" in each and ("--require-hashes" in each or "--no-index" in each) for each in installs]
            if stage.name == "worker-cpu-environment" and not all(hashed):
                assert "--no-deps" in installs[-1]
                assert "torch.txt" in installs[-1]
                hashed[-1:] = []
            assert all(hashed), (stage.name, installs)
            for packages in re.findall(r"apt-get install ([^&]*)", line):
                assert all("=" in each for each in packages.split() if not each.startswith("--")), packages


def test_workers_are_offline() -> None:
    """Workers use only the models in the image: the hub client is offline."""
    for name in ("worker-cpu", "worker-cuda"):
        assert environment(name)["HF_HUB_OFFLINE"] == "1"
        assert environment(name)["HF_HOME"] == environment(name)["MODELS"]


def test_the_build_context_contains_all_copied_files() -> None:
    """Each source of a COPY exists and is not excluded by .dockerignore."""
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"]
    for stage in stages().values():
        for copied in stage.values("COPY"):
            if not copied.startswith("--from"):
                for source in copied.split()[:-1]:
                    assert any(source == each or source.startswith(f"{each}/") for each in sent), source
                    assert (ROOT / source).exists()


def test_a_model_of_the_hub_is_a_commit(tmp_path: Path) -> None:
    """bake.sh refuses a branch, which may move to another model."""
    env = {"MODELS": str(tmp_path), "VENV": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = ["/bin/sh", str(ROOT / "docker" / "bake.sh"), "org/model", "main"]
    ran = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "git ls-remote https://huggingface.co/org/model HEAD" in ran.stderr


def test_a_model_of_the_hub_is_downloaded_without_pickles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The download command requests all files of the model except the excluded formats."""
    request: dict[str, object] = {}

    def snapshot(**of: object) -> str:
        request.update(of)
        return "/models"

    script = (ROOT / "docker" / "bake.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(r'/bin/hf" (download .*)', script)
    monkeypatch.setattr(download, "snapshot_download", snapshot)
    words = [{"$1": "org/model", "$2": "v1"}.get(each, each) for each in shlex.split(line)]
    result = CliRunner().invoke(hf.app, words)
    assert result.exit_code == 0, result.output
    assert (request["repo_id"], request["revision"], request["allow_patterns"]) == ("org/model", "v1", None)
    assert request["ignore_patterns"] == ["*.bin", "*.pt", "*.h5", "*.msgpack", "*.onnx*"]
