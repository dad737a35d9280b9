"""promtool, which reads rules and metrics as Prometheus does."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers import NO_SKIP_VARIABLE


def promtool(*arguments: str | Path, text: str = "") -> str:
    """Runs promtool, which must find nothing wrong; returns what it says.

    Where there is none the test is skipped; it fails where skipping is forbidden.
    """
    found = shutil.which("promtool")
    if found is None:
        reason = "needs promtool, which Debian's package prometheus has"
        if os.environ.get(NO_SKIP_VARIABLE) == "1":
            pytest.fail(f"{reason} ({NO_SKIP_VARIABLE}=1)")
        pytest.skip(reason)
    ran = subprocess.run([found, *arguments], check=False, capture_output=True, text=True, input=text)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def check_rules(groups: list[dict[str, Any]], folder: Path) -> Path:
    """Writes groups of rules as Prometheus reads them and has promtool check them; returns the file."""
    path = folder / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    promtool("check", "rules", "--lint-fatal", path)
    return path
