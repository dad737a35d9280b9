"""Code of the caller's folder stays out of the imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from redbatch.import_path import PACKAGE_ROOT, child_environment, without_caller


def test_entries_that_mean_the_callers_folder_go(tmp_path: Path) -> None:
    """Empty, relative and the folder itself go; absolute paths elsewhere stay in their order."""
    entries = ["", ".", "src", "..", str(tmp_path), "/usr/lib/python3", "/opt/mine"]
    assert without_caller(entries, tmp_path) == ["/usr/lib/python3", "/opt/mine"]


def test_the_root_of_the_package_stays(tmp_path: Path) -> None:
    """A checkout runs from its own folder, which is then named by its absolute path."""
    assert without_caller(["", "/usr/lib/python3"], tmp_path, root=tmp_path) == [str(tmp_path), "/usr/lib/python3"]


def test_children_import_nothing_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children, and their children, get a safe path and a PYTHONPATH without this folder, but with the package."""
    monkeypatch.chdir(tmp_path)
    environment = child_environment({"PYTHONPATH": f".:{tmp_path}:/opt/mine", "OTHER": "kept"})
    assert environment["PYTHONSAFEPATH"] == "1"
    assert environment["OTHER"] == "kept"
    assert environment["PYTHONPATH"].split(":") == ["/opt/mine", str(PACKAGE_ROOT)]
