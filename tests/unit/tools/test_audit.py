"""`make audit`: what it makes of the answers of pip-audit. A script stands in for that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.audit import CLEAN, LOCKS, ROOT, UNKNOWN, VULNERABLE, audit

SAFE = {"name": "safe", "version": "1", "vulns": []}
FAULT = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.1"]}
UNSAFE = {"name": "unsafe", "version": "2", "vulns": [FAULT]}
SKIPPED = {"name": "skipped", "skip_reason": "not found"}


def fake_tool(folder: Path, packages: list[Any] | None) -> Path:
    """Returns a program that prints these packages as pip-audit does; None: it fails without a result."""
    program = folder / "pip-audit"
    answer = json.dumps({"dependencies": packages, "fixes": []}) if packages is not None else ""
    program.write_text(f"#!/bin/sh\necho \"$@\" >{folder}/arguments\necho 'why' >&2\necho '{answer}'\nexit 1\n")
    program.chmod(0o700)
    return program


@pytest.mark.parametrize(
    ("packages", "code"),
    [
        ([SAFE], CLEAN),
        ([SAFE, UNSAFE], VULNERABLE),
        ([SAFE, SKIPPED], UNKNOWN),
        ([UNSAFE, SKIPPED], VULNERABLE),
        ([], UNKNOWN),
        (None, UNKNOWN),
    ],
    ids=["safe", "unsafe", "a package skipped", "unsafe and skipped", "nothing audited", "no data"],
)
def test_only_packages_whose_vulnerabilities_are_known_pass(
    packages: list[Any] | None, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package that could not be looked up is no pass, and its reason is printed."""
    assert audit(fake_tool(tmp_path, packages)) == code
    output = capsys.readouterr()
    assert ("this is no pass" in output.err) == (SKIPPED in (packages or [SKIPPED]))
    assert ("unsafe 2: PYSEC-1, CVE-1; fixed in 2.1" in output.out) == (code == VULNERABLE)
    assert packages is not None or "why" in output.err


def test_all_lock_files_are_audited(tmp_path: Path) -> None:
    """A new lock file has to be added; none is audited without its hashes."""
    assert {path.stem for path in (ROOT / "requirements").glob("*.lock")} == set(LOCKS)
    audit(fake_tool(tmp_path, [SAFE]))
    arguments = (tmp_path / "arguments").read_text(encoding="utf-8")
    assert all(f"--requirement requirements/{name}.lock" in arguments for name in LOCKS)
    assert "--require-hashes" in arguments
