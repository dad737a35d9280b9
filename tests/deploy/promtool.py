"""Runs promtool, which checks rules and metrics like Prometheus."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.servers import require_tool


def promtool(*arguments: str | Path, text: str = "") -> str:
    """Runs promtool; returns its output. Raises AssertionError: it finds a fault.

    Without promtool the test is skipped, or fails if skipping is forbidden.
    """
    found = require_tool("promtool", "Debian's package prometheus contains it")
    ran = subprocess.run([found, *arguments], check=False, capture_output=True, text=True, input=text)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def check_rules(groups: list[dict[str, Any]], folder: Path) -> Path:
    """Writes groups of rules as a file of Prometheus and checks it with promtool; returns the file."""
    path = folder / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    promtool("check", "rules", "--lint-fatal", path)
    return path
