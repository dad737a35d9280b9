"""The commands of the documents: found by what they contain, so that the pages and the tests cannot drift apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.engine.commands import run
from tests.integration.documents.blocks import ROOT, blocks

SCRIPT_S = 900.0


def documented(page: str, part: str, until: str = "") -> str:
    """Returns the block of a page in docs/ that contains this text: all of it, or the lines from there to `until`.

    Raises AssertionError: no block contains the text, or several do.
    """
    found = [block.code for block in blocks(ROOT / "docs" / page) if part in block.code]
    assert len(found) == 1, f"{len(found)} blocks of {page} contain: {part}"
    if not until:
        return found[0]
    lines = re.search(rf"^[^\n]*{re.escape(part)}.*?{re.escape(until)}.*?$", found[0], re.MULTILINE | re.DOTALL)
    assert lines is not None, f"{page} has no such lines: {part} ... {until}"
    return lines[0]


def run_script(script: str, folder: Path, env: Mapping[str, str], replaced: Mapping[str, str]) -> str:
    """Runs a script of a page in a folder, with other names than the page has; returns what it wrote.

    Raises CommandError: a command failed. Raises AssertionError: a name is not in it.
    """
    for name, value in replaced.items():
        assert name in script, f"not in the script: {name}\n{script}"
        script = script.replace(name, value)
    return run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=env, timeout_s=SCRIPT_S)
