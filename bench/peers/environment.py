"""The peers' environments: one for each under .bench, created once, and again if its pins change."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench.machine import ROOT

PEERS = Path(__file__).parent
FOLDER = ROOT / ".bench"
TORCH = ROOT / "requirements" / "torch.txt"
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
MAX_LOG_LINES = 15
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;#]+)")
_GPU = re.compile(r"(?:nvidia|cuda|triton)-\S+")
_WOULD_INSTALL = re.compile(r"^Would install (.*)$", re.MULTILINE)


class EnvironmentBuildError(RuntimeError):
    """An environment cannot be created; the message ends with pip's output."""


def pins(text: str) -> dict[str, str]:
    """Returns the versions in a requirements file, by package. Raises ValueError at a line that is not a pin."""
    versions = {}
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        match = _PIN.fullmatch(line)
        if match is None:
            raise ValueError(f"not a pin: {line}")
        versions[canonical(match[1])] = match[2]
    return versions


def canonical(package: str) -> str:
    """Returns the normalized name of a package, which all its spellings share."""
    return re.sub(r"[-_.]+", "-", package).lower()


def requirements(folder: str) -> Path:
    """Returns the file that pins a peer's environment."""
    return PEERS / folder / "requirements.txt"


def version(folder: str, package: str) -> str:
    """Returns the version of a package in a peer's environment."""
    return pins(requirements(folder).read_text(encoding="utf-8"))[canonical(package)]


def gpu_packages(dry_run: str) -> list[str]:
    """Returns the packages that pip would install only for GPUs."""
    return sorted({name for line in _WOULD_INSTALL.findall(dry_run) for name in _GPU.findall(line)})


def fingerprint(texts: Iterable[str]) -> str:
    """Returns a hash of the contents of requirements files, the folder of environments and the Python version."""
    return hashlib.sha256("\0".join([str(FOLDER), sys.version, *texts]).encode()).hexdigest()


def make(folder: str, show: Callable[[str], None]) -> Path:
    """Creates a peer's environment unless it exists, and returns the folder of its programs.

    torch is installed first, from requirements/torch.txt, and then all other packages as pinned.

    Raises:
        EnvironmentBuildError: pip failed, or would download torch for GPUs.
    """
    return make_at(FOLDER / folder, requirements(folder), [TORCH], show)


def make_at(folder: Path, pinned: Path, before: Sequence[Path], show: Callable[[str], None]) -> Path:
    """Creates an environment in a folder unless it exists, and returns the folder of its programs.

    Args:
        folder: the folder of this environment.
        pinned: file that pins all packages.
        before: requirements files that pip resolves and installs first.
        show: called before a slow installation, with its description.

    Raises:
        EnvironmentBuildError: pip failed, or would download torch for GPUs.
    """
    programs = folder / "venv" / "bin"
    stamp = folder / "made-of"
    expected = fingerprint(path.read_text(encoding="utf-8") for path in (*before, pinned))
    if stamp.exists() and stamp.read_text(encoding="utf-8") == expected and (programs / "python").exists():
        return programs
    show(f"creating the environment of {folder.name} (once; a minute or two)")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _run(sys.executable, "-m", "venv", str(folder / "venv"))
    python = str(programs / "python")
    for each in before:
        if extra := gpu_packages(_run(python, *PIP, "install", "--dry-run", "-r", str(each))):
            raise EnvironmentBuildError(
                f"{folder.name}: pip would download torch for GPUs ({len(extra)} packages), but this benchmark runs on "
                "the CPU: set PIP_EXTRA_INDEX_URL to PyTorch's CPU index"
            )
        _run(python, *PIP, "install", "-r", str(each))
    _run(python, *PIP, "install", "--no-deps", "-r", str(pinned))
    stamp.write_text(expected, encoding="utf-8")
    return programs


def _run(*command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        last = "\n".join((process.stdout + process.stderr).strip().splitlines()[-MAX_LOG_LINES:])
        raise EnvironmentBuildError(f"{' '.join(command[1:4])} failed:\n{last}")
    return process.stdout
