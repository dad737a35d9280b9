"""The stack for Docker Swarm, read, and what it wants to be there before."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from redbatch.commands import app
from tests.deploy.dockerfile import ROOT

STACK, RESERVE = ROOT / "swarm" / "stack.yml", ROOT / "swarm" / "stack.gpu-reserve.yml"


def resolved(path: Path) -> dict[str, Any]:
    """Returns what stands in a file, with the variables that have a default as if none of them was set."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", path.read_text(encoding="utf-8"))
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def most_bytes(redis: dict[str, Any]) -> int:
    """Returns the maxmemory of the service, which stands in its command."""
    (most_mb,) = [int(after.removesuffix("mb")) for word, after in pairwise(redis["command"]) if word == "--maxmemory"]
    return most_mb * 2**20


def made_secrets() -> dict[str, str]:
    """Returns what `redbatch swarm secrets` has docker keep, by name."""
    script = CliRunner().invoke(app, ["swarm", "secrets"]).stdout
    found = re.findall(r"^docker secret create (\S+) - <<'(\w+)'\n(.*?)^\2$", script, re.DOTALL | re.MULTILINE)
    return {name: text for name, _, text in found}
