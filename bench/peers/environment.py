"""The peers' environments: one for each under .bench, made once and made anew when its pins change."""

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
WHERE = ROOT / ".bench"
TORCH = ROOT / "requirements" / "torch.txt"
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
LAST_LINES = 15
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;#]+)")
_GPU = re.compile(r"(?:nvidia|cuda|triton)-\S+")


class CannotMakeError(RuntimeError):
    """An environment cannot be made; the message ends with what pip said."""


def pins(text: str) -> dict[str, str]:
    """Returns the versions in a requirements file, by package. Raises ValueError at a line that pins nothing."""
    found = {}
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        match = _PIN.fullmatch(line)
        if match is None:
            raise ValueError(f"not a pin: {line}")
        found[canonical(match[1])] = match[2]
    return found


def canonical(package: str) -> str:
    """Returns a package's name as all its spellings have it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def requirements(folder: str) -> Path:
    """Returns the file that pins a peer's environment."""
    return PEERS / folder / "requirements.txt"


def version(folder: str, package: str) -> str:
    """Returns which version of a package a peer's environment has."""
    return pins(requirements(folder).read_text(encoding="utf-8"))[canonical(package)]


def for_a_gpu(dry_run: str) -> list[str]:
    """Returns what pip would install only for the sake of a GPU."""
    return sorted(set(_GPU.findall(dry_run)))


def stamp_of(texts: Iterable[str]) -> str:
    """Returns what an environment made of these files, in this place, is known by."""
    return hashlib.sha256("\0".join([str(WHERE), sys.version, *texts]).encode()).hexdigest()


def make(folder: str, say: Callable[[str], None]) -> Path:
    """Makes a peer's environment unless it is there, and returns the folder of its programs.

    torch is installed first, as requirements/torch.txt has it, and then everything else as it is pinned.

    Raises:
        CannotMakeError: pip failed, or would fetch a torch for GPUs.
    """
    return make_at(WHERE / folder, requirements(folder), [TORCH], say)


def make_at(place: Path, pinned: Path, before: Sequence[Path], say: Callable[[str], None]) -> Path:
    """Makes an environment in a folder of its own unless it is there, and returns the folder of its programs.

    Args:
        place: the folder.
        pinned: requirements, all of them.
        before: requirements that pip resolves, and that are installed first.
        say: is told what takes so long.

    Raises:
        CannotMakeError: pip failed, or would fetch a torch for GPUs.
    """
    programs = place / "venv" / "bin"
    stamp = place / "made-of"
    made_of = stamp_of(path.read_text(encoding="utf-8") for path in (*before, pinned))
    if stamp.exists() and stamp.read_text(encoding="utf-8") == made_of and (programs / "python").exists():
        return programs
    say(f"making the environment of {place.name} (once; a minute or two)")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    _run(sys.executable, "-m", "venv", str(place / "venv"))
    python = str(programs / "python")
    for each in before:
        if extra := for_a_gpu(_run(python, *PIP, "install", "--dry-run", "-r", str(each))):
            raise CannotMakeError(
                f"{place.name}: pip would fetch torch for GPUs ({len(extra)} packages), and this is measured on the "
                "CPU: name PyTorch's CPU index in PIP_EXTRA_INDEX_URL"
            )
        _run(python, *PIP, "install", "-r", str(each))
    _run(python, *PIP, "install", "--no-deps", "-r", str(pinned))
    stamp.write_text(made_of, encoding="utf-8")
    return programs


def _run(*command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        last = "\n".join((ran.stdout + ran.stderr).strip().splitlines()[-LAST_LINES:])
        raise CannotMakeError(f"{' '.join(command[1:4])} failed:\n{last}")
    return ran.stdout
