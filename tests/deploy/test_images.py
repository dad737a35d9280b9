"""The images: what their file says, and what it installs, in an environment as fresh as theirs."""

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
from importlib.metadata import requires, version
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from click.testing import CliRunner
from huggingface_hub.cli import download, hf
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
    """What is built once for all images: the wheel. Yields where that is: anybody may read it, as in an image."""
    with TemporaryDirectory(prefix="redbatch-images-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "wheel").mkdir()
        install("wheel", root / "wheel", places(root, "wheel"))
        yield root


def places(root: Path, name: str) -> dict[str, str]:
    """Returns where this machine has what an image has under /opt."""
    path = f"{Path(shutil.which('python3.11') or shutil.which('python3') or '').parent}:/usr/bin:/bin"
    own = {"HOME": str(root), "PATH": path.removeprefix(f"{ROOT}/.venv/bin:")}
    pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_") or key.endswith("_proxy")}
    if version("torch").endswith("+cpu"):  # so pip finds builds for CPUs where it finds all else
        own["TORCH_INDEX"] = ""
    if name == "cuda":  # and what is locked by its hash it has to look for elsewhere
        pip = {key: value for key, value in pip.items() if key != "PIP_FIND_LINKS"} | {"PIP_CONFIG_FILE": os.devnull}
    shared = {"WHEELS": str(root / "wheels"), "MODELS": str(root / "models")}
    return pip | own | shared | {"VENV": str(root / f"{name}-environment")}


def imports(python: Path, module: str) -> bool:
    """Whether an environment has a module."""
    return subprocess.run([python, "-I", "-c", f"import {module}"], check=False, capture_output=True).returncode == 0


def words(name: str, instruction: str) -> list[str]:
    """Returns the words that an image runs: of its CMD, or of the check of its health."""
    (rest,) = [each for stage in chain(name) for each in stage.values(instruction)]
    found: list[str] = json.loads(rest[rest.index("[") :])
    return found


def confined(command: list[str], root: Path, home: Path) -> list[str]:
    """Returns a command that runs as a container does: as nobody, without rights, on files that it cannot change.

    But for those of its home. Who is not root cannot have that: there it runs as who it is. Where Python is in a place
    that others may not look at, it keeps root's number, and has no rights nonetheless.
    """
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        return command
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && mount -t tmpfs -o mode=1777,noexec tmpfs "$1"'
    alone = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{script} && shift 1 && exec "$@"']
    is_reached = all(each.stat().st_mode & stat.S_IXOTH for each in Path(sys.executable).resolve().parents)
    nobody = ["--reuid=65532", "--regid=65532", "--clear-groups"] if is_reached else []
    rights = ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    return [*alone, str(root), str(home), "setpriv", *nobody, *rights, *command]


@contextmanager
def running(root: Path, name: str, variables: dict[str, str]) -> Iterator[Callable[[], bool]]:
    """Runs what an image runs, for as long as the block takes. Gives what asks for its health, as the image does."""
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
async def test_what_the_images_install_runs(built: Path) -> None:
    """A gateway without torch, and a worker with it and its model, which asks nobody for anything.

    They run as containers do, by the command of the image, and are healthy by its check.
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
def test_what_the_image_for_cuda_installs_has_cuda(built: Path) -> None:
    """Gigabytes, each by its hash; without a GPU they say so, and no more can be seen of them here."""
    install("worker-cuda-environment", built / "wheel", places(built, "cuda"))
    python = built / "cuda-environment" / "bin" / "python"
    asked = "import torch; print(torch.version.cuda, torch.cuda.is_available(), torch.ones(2).sum().item())"
    ran = subprocess.run([python, "-I", "-c", asked], check=True, capture_output=True, text=True)
    assert re.fullmatch(r"13\.\d+ (True|False) 2.0\n", ran.stdout)
    checked = subprocess.run([python, "-m", "pip", "check"], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_what_is_locked_is_whole(name: str) -> None:
    """Nothing is installed with what it needs, so each of these is in the file itself; torch is installed besides."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    locked = {canonicalize_name(each) for each in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    there = locked | ({"torch"} if name == "worker" else set())
    assert {"redis", "structlog"} < locked
    assert {need: by for by in there for need in needs(by) if need not in there} == {}


def test_there_is_one_version_of_torch() -> None:
    """On CPUs and on GPUs."""
    pinned = (ROOT / "requirements" / "torch.txt").read_text(encoding="utf-8").strip()
    locked = (ROOT / "requirements" / "cuda.lock").read_text(encoding="utf-8")
    assert re.findall(r"^torch==\S+", locked, re.MULTILINE) == [pinned]


def needs(package: str) -> list[str]:
    """Returns what a package needs on Linux, without extras, as the environment has it that all this runs in."""
    found = map(Requirement, requires(package) or [])
    linux = {"extra": "", "python_version": "3.11", "python_full_version": "3.11.14", "sys_platform": "linux"}
    return [canonicalize_name(each.name) for each in found if each.marker is None or each.marker.evaluate(linux)]


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
    first = [] if name == "gateway" else ["/readyz?exclude=redis"]
    assert json.loads(check.partition("CMD ")[2]) == ["python", "-I", "/opt/healthcheck.py", *first]
    assert environment(name)["REDBATCH_ADMIN_PORT"] == str(settings.admin_port)
    assert str(settings.admin_port) in " ".join(rest for word, rest in every if word == "EXPOSE").split()
    assert environment(name)["HOME"] == "/tmp"  # noqa: S108 - the image's


def test_bases_and_packages_are_pinned() -> None:
    """The base by version, and by digest for who gives one; Debian's packages by version, Python's by hash.

    Only the torch for CPUs is of a version, and it comes last, without what it needs.
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


def test_a_model_of_the_hub_is_a_commit(tmp_path: Path) -> None:
    """A branch would be another model tomorrow."""
    env = {"MODELS": str(tmp_path), "VENV": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = ["/bin/sh", str(ROOT / "docker" / "bake.sh"), "org/model", "main"]
    ran = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "git ls-remote https://huggingface.co/org/model HEAD" in ran.stderr


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
