"""The run file by which other commands find a running `up`."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from redbatch.up.run_file import RunFile, find_running_up, remove_run_file, write_run_file


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory for this test alone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def run_file_of(pid: int) -> RunFile:
    """Returns the run file of an `up` with that process id."""
    return RunFile(pid, "http://127.0.0.1:8080", "redis://:secret@127.0.0.1:1/0", "minilm")


def test_a_living_up_is_found(runtime_folder: Path) -> None:
    """A living `up` is found with its whole run file, which only its user can read."""
    write_run_file(run_file_of(os.getpid()))
    assert find_running_up() == run_file_of(os.getpid())
    (folder,) = runtime_folder.iterdir()
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_removal_leaves_nothing(runtime_folder: Path) -> None:
    """After the removal, neither file nor folder is left, and no `up` is found."""
    write_run_file(run_file_of(os.getpid()))
    remove_run_file(os.getpid())
    assert find_running_up() is None
    assert list(runtime_folder.iterdir()) == []


def test_removal_spares_the_file_of_another_up() -> None:
    """An `up` that ends does not remove the run file of one that started later."""
    write_run_file(run_file_of(os.getpid()))
    remove_run_file(os.getpid() + 1)
    assert find_running_up() is not None


def test_a_dead_up_is_not_found() -> None:
    """The run file of a killed `up` is ignored."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    write_run_file(run_file_of(child.pid))
    assert find_running_up() is None


def test_a_search_without_a_run_file_creates_nothing(runtime_folder: Path) -> None:
    """Without a run file, the search finds nothing and creates no file or folder."""
    assert find_running_up() is None
    assert list(runtime_folder.iterdir()) == []


def test_a_folder_open_to_others_is_not_used(runtime_folder: Path) -> None:
    """A folder that others can write to is neither written nor read: its content may be theirs."""
    folder = runtime_folder / f"redbatch-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(PermissionError):
        write_run_file(run_file_of(os.getpid()))
    (folder / "up.json").write_text(
        f'{{"pid": {os.getpid()}, "url": "", "redis_url": "redis://evil/0", "queue": "minilm"}}'
    )
    assert find_running_up() is None


def test_a_damaged_file_is_ignored(runtime_folder: Path) -> None:
    """A run file that is incomplete or foreign counts as missing."""
    write_run_file(run_file_of(os.getpid()))
    (runtime_folder / f"redbatch-{os.getuid()}" / "up.json").write_text('{"pid": 1')
    assert find_running_up() is None
