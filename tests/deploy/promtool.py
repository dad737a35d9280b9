"""promtool, which reads rules and metrics as Prometheus does."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.servers import tool


def promtool(*arguments: str | Path, text: str = "") -> str:
    """Runs promtool, which must find nothing wrong; returns what it says.

    Where there is none the test is skipped; it fails where skipping is forbidden.
    """
    found = tool("promtool", "Debian's package prometheus has it")
    ran = subprocess.run([found, *arguments], check=False, capture_output=True, text=True, input=text)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def check_rules(groups: list[dict[str, Any]], folder: Path) -> Path:
    """Writes groups of rules as Prometheus reads them and has promtool check them; returns the file."""
    path = folder / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    promtool("check", "rules", "--lint-fatal", path)
    return path
