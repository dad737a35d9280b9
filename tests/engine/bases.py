"""The images that the Dockerfiles start from, made of Debian's packages: Python, Redis and haproxy.

Where there is a registry with the official images, they differ from these in versions. What the tests show of
Redbatch's own images and services does not depend on that.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.deploy.dockerfile import PATH
from tests.deploy.swarm_stack import STACK, resolve
from tests.engine.commands import run
from tests.engine.engine import Engine
from tests.engine.machine import CLIENT, CODENAME
from tests.engine.pip_mirror import pip_configuration

RECIPES = Path(__file__).with_name("bases")
LABEL = "redbatch.recipe"
DEBIAN = "redbatch-engine/debian"
HAPROXY = "redbatch-engine/haproxy"
BUILD_S = 600.0

LIBRARIES = (
    "ca-certificates", "libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libncursesw6", "libreadline8",
    "libsqlite3-0", "libssl3", "libuuid1", "zlib1g",
)  # fmt: skip
"""Debian's packages that the standard library of Python needs."""

UNUSED = ("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt/archives", "var/lib/apt/lists")
"""Folders that official images of Debian empty, too."""

APT = {
    "etc/apt/apt.conf.d/docker-clean": 'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";',
    "etc/dpkg/dpkg.cfg.d/docker-apt-speedup": "force-unsafe-io",
}
"""Files of official images of Debian, by which apt leaves no cache and waits for no disk."""


def python_image() -> str:
    """Returns the name of the image that the Dockerfile starts from."""
    (name,) = re.findall(r"^ARG BASE=(\S+)$", PATH.read_text(encoding="utf-8"), re.MULTILINE)
    return str(name)


def redis_image() -> str:
    """Returns the name of the image of Redis in the stack."""
    return str(resolve(STACK)["services"]["redis"]["image"])


def make_bases(engine: Engine) -> None:
    """Makes the base images that are not there yet, or whose recipe has changed."""
    _make(engine, DEBIAN, " ".join([*LIBRARIES, *UNUSED, *APT.values(), _mirror()]), _import_debian)
    debian = _recipe_of(engine, DEBIAN)
    _make(engine, python_image(), debian + sys.version + pip_configuration(), _build_python)
    for name in (redis_image(), HAPROXY):
        _make(engine, name, debian, _build)


def _make(engine: Engine, name: str, recipe: str, make: Callable[[Engine, str, str], None]) -> None:
    files = [path.read_text(encoding="utf-8") for path in sorted(RECIPES.glob(f"{_short(name)}*"))]
    digest = hashlib.sha256("".join([recipe, *files]).encode()).hexdigest()[:16]
    if _recipe_of(engine, name) != digest:
        make(engine, name, digest)


def _short(name: str) -> str:
    """Returns the name of an image without its registry and version."""
    return name.partition(":")[0].rpartition("/")[2]


def _recipe_of(engine: Engine, name: str) -> str:
    """Returns the label of an image, or "" if it is not there."""
    if not engine.has_image(name):
        return ""
    return str((engine.inspect(name, "image")["Config"]["Labels"] or {}).get(LABEL, ""))


def _mirror() -> str:
    """Returns where this machine has Debian's packages from."""
    found = run(["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)"]).split("\n")
    return next(line.split()[1] for line in found if line.startswith(f"{CODENAME} "))


def _import_debian(engine: Engine, name: str, digest: str) -> None:
    with TemporaryDirectory(dir=engine.folder) as folder:
        included = ",".join(LIBRARIES)
        run(
            ["debootstrap", "--variant=minbase", f"--include={included}", CODENAME, folder, _mirror()],
            timeout_s=BUILD_S,
        )
        for emptied in UNUSED:
            shutil.rmtree(Path(folder, emptied))
            Path(folder, emptied).mkdir()
        for path, line in APT.items():
            Path(folder, path).write_text(f"{line}\n", encoding="utf-8")
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", Path(folder, "etc/ssl/certs"))
        command = [CLIENT, "import", "--change", f"LABEL {LABEL}={digest}", "-", name]
        with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(command, env=engine.environment, stdin=tar.stdout, check=True, stdout=subprocess.DEVNULL)
        assert tar.returncode == 0


def _build_python(engine: Engine, name: str, digest: str) -> None:
    with TemporaryDirectory(dir=engine.folder) as folder:
        _copy_python(Path(folder, "usr/local"))
        Path(folder, "etc").mkdir()
        Path(folder, "etc/pip.conf").write_text(pip_configuration(), encoding="utf-8")
        _build(engine, name, digest, Path(folder))


def _copy_python(target: Path) -> None:
    """Copies the Python of this process, without its tests and packages, to where the official image has it."""
    source, version = Path(sys.base_prefix), f"python{sys.version_info.major}.{sys.version_info.minor}"
    ignored = shutil.ignore_patterns("__pycache__", "site-packages", "test", "tests", "idlelib", "tkinter", "config-*")
    shutil.copytree(source / "lib" / version, target / "lib" / version, ignore=ignored, symlinks=True)
    (target / "lib" / version / "site-packages").mkdir()
    for library in source.glob("lib/libpython3*.so*"):
        shutil.copy(library, target / "lib", follow_symlinks=False)
    (target / "bin").mkdir()
    shutil.copy(source / "bin" / version, target / "bin")
    for alias in ("python", "python3"):
        (target / "bin" / alias).symlink_to(version)


def _build(engine: Engine, name: str, digest: str, context: Path = RECIPES) -> None:
    """Builds the recipe that is called as the image."""
    recipe = RECIPES / f"{_short(name)}.Dockerfile"
    engine.docker(
        "build", "--network=host", "--label", f"{LABEL}={digest}", "-t", name, "-f", recipe, context, timeout_s=BUILD_S
    )
