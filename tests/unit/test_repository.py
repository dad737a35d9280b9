"""What holds for the repository as a whole: sizes, and documents that are generated."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "bench", "gpuworker", "shared", "redbatch", "tests")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MAX_LINES = {"tests": 500}
MAX_FUNCTION_LINES = 40


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_are_small(path: Path) -> None:
    """A module has at most 350 lines, one of the tests 500; a function has at most 40."""
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_LINES.get(path.relative_to(ROOT).parts[0], 350)
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {node.name for node in functions if (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES}
    assert long == set()


def test_the_openapi_description_is_what_the_command_prints() -> None:
    """docs/openapi.json is that of today's routes."""
    command = [sys.executable, "-P", "-m", "redbatch", "openapi"]
    printed = subprocess.run(command, check=True, capture_output=True).stdout
    assert printed == (ROOT / "docs" / "openapi.json").read_bytes()


def test_the_settings_page_is_what_the_command_prints() -> None:
    """docs/settings.md holds the table that `redbatch settings --markdown` prints, with the defaults."""
    command = [sys.executable, "-P", "-m", "redbatch", "settings", "--markdown"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env={"PATH": ""}).stdout
    assert printed.strip() in (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
