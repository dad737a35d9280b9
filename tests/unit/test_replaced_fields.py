"""Calls of `_replace` name fields that exist: of records, type checkers do not see it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import SplitResult

ROOT = Path(__file__).parents[2]
BASES = {"NamedTuple", "Record"}


def trees() -> Iterator[tuple[Path, ast.Module]]:
    """Returns the modules of all processes, parsed."""
    for package in ("api", "gpuworker", "redbatch", "shared"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def fields() -> set[str]:
    """Returns the names of the fields of all records and named tuples."""
    return {
        statement.target.id
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and BASES & {base.id for base in node.bases if isinstance(base, ast.Name)}
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def test_replaced_fields_exist() -> None:
    """A wrong name would be an error of the gateway, at the first request that needs it."""
    known, calls = fields() | set(SplitResult._fields), 0
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "_replace":
                calls += 1
                names = {each.arg for each in node.keywords if each.arg is not None}
                assert names <= known, f"{path}:{node.lineno}: {names - known}"
    assert calls > 30, "the calls were not found"
