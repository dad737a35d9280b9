"""The current folder stays out of the import path."""

from __future__ import annotations

from pathlib import Path

import pytest

from redbatch.import_path import PACKAGE_ROOT, child_environment, exclude_caller_folder


def test_entries_for_the_current_folder_are_removed(tmp_path: Path) -> None:
    """Empty and relative entries and the folder itself are removed; other absolute paths keep their order."""
    entries = ["", ".", "src", "..", str(tmp_path), "/usr/lib/python3", "/opt/mine"]
    assert exclude_caller_folder(entries, tmp_path) == ["/usr/lib/python3", "/opt/mine"]


def test_the_root_of_the_package_stays(tmp_path: Path) -> None:
    """The root of the package stays, as an absolute path, even if it is the current folder."""
    assert exclude_caller_folder(["", "/usr/lib/python3"], tmp_path, root=tmp_path) == [
        str(tmp_path),
        "/usr/lib/python3",
    ]


def test_children_import_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children get PYTHONSAFEPATH and a PYTHONPATH without the current folder, but with the package."""
    monkeypatch.chdir(tmp_path)
    environment = child_environment({"PYTHONPATH": f".:{tmp_path}:/opt/mine", "OTHER": "kept"})
    assert environment["PYTHONSAFEPATH"] == "1"
    assert environment["OTHER"] == "kept"
    assert environment["PYTHONPATH"].split(":") == ["/opt/mine", str(PACKAGE_ROOT)]
