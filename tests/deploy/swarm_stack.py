"""The stack for Docker Swarm, and the secrets that it requires."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from redbatch.commands import app
from tests.deploy.dockerfile import ROOT

STACK, RESERVE, CPU, SHARDS = (
    ROOT / "swarm" / name for name in ("stack.yml", "stack.gpu-reserve.yml", "stack.cpu.yml", "stack.shards.yml")
)


def resolve(path: Path) -> dict[str, Any]:
    """Returns the content of a file, with variables replaced by their defaults."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", path.read_text(encoding="utf-8"))
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def maxmemory_bytes(redis: dict[str, Any]) -> int:
    """Returns the maxmemory in bytes, from the command of the service."""
    (most_mb,) = [int(after.removesuffix("mb")) for word, after in pairwise(redis["command"]) if word == "--maxmemory"]
    return most_mb * 2**20


def generated_secrets() -> dict[str, str]:
    """Returns the secrets that `redbatch swarm secrets` creates, by name."""
    script = CliRunner().invoke(app, ["swarm", "secrets"]).stdout
    found = re.findall(r"^docker secret create (\S+) - <<'(\w+)'\n(.*?)^\2$", script, re.DOTALL | re.MULTILINE)
    return {name: text for name, _, text in found}
