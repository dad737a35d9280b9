"""The Dockerfile: its stages, and the execution of instructions that need no container engine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

ROOT = Path(__file__).parents[2]
PATH = ROOT / "docker" / "Dockerfile"
TIMEOUT_S = 600.0


@dataclass
class Stage:
    """A stage: its base, and its instructions, each a word and the rest of its line."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def values(self, word: str) -> list[str]:
        """Returns the arguments of all its instructions with this word."""
        return [rest for each, rest in self.instructions if each == word]


def stages() -> dict[str, Stage]:
    """Returns the stages by name, in the order of the file."""
    text = re.sub(r"^\s*#.*\n", "", PATH.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, Stage] = {}
    stage = Stage("", "")
    for line in filter(None, map(str.strip, text.splitlines())):
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stage = found[name] = Stage(name, base)
        else:
            stage.instructions.append((word, rest))
    return found


def chain(name: str) -> list[Stage]:
    """Returns a stage and the stages that it is based on, the lowest first."""
    every, found = stages(), list[Stage]()
    while name in every:
        found.insert(0, every[name])
        name = every[name].base
    return found


def environment(name: str) -> dict[str, str]:
    """Returns the variables of a stage: those of ENV, and build arguments with their defaults."""
    found: dict[str, str] = {}
    for stage in chain(name):
        for word, rest in stage.instructions:
            if word in ("ARG", "ENV"):
                for key, value in re.findall(r"(\w+)=(\S*)", rest):
                    found[key] = Template(value).safe_substitute(found)
    return found


def install(name: str, folder: Path, places: Mapping[str, str]) -> None:
    """Executes the copies and installations of a stage and its bases, except those of Debian packages.

    Args:
        name: the name of the stage.
        folder: the working directory of the stage.
        places: variables with other values than in the file, whose paths do not exist on this machine.
    """
    variables = {**environment(name), **places}
    for stage in chain(name):
        for word, rest in stage.instructions:
            if word == "COPY" and not rest.startswith("--from"):
                copy(rest, folder)
            elif word == "RUN" and "apt-get" not in rest:
                run(re.sub(r"--mount=\S+ ", "", rest), folder, variables)


def copy(arguments: str, folder: Path) -> None:
    """Copies files of the repository into the working directory; targets elsewhere in the image are ignored."""
    *sources, target = arguments.split()
    if target.startswith("/"):
        return
    for source in sources:
        path, to = ROOT / source, folder / target
        if path.is_dir():
            shutil.copytree(path, to, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            to = to / path.name if target.endswith("/") else to
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)


def run(command: str, folder: Path, variables: Mapping[str, str]) -> None:
    """Runs a line like a container engine: by a shell, in the stage's folder, with its variables.

    Raises AssertionError: the line fails.
    """
    ran = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=dict(variables),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
