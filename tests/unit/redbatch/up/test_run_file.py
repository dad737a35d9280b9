"""How other commands find a running `up`."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from redbatch.up.run_file import Running, announce, find_running, withdraw


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory of the test's own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def running(pid: int) -> Running:
    """An `up` of that process."""
    return Running(pid, "http://127.0.0.1:8080", "redis://:secret@127.0.0.1:1/0", "minilm")


def test_what_is_announced_is_found(runtime_folder: Path) -> None:
    """A living `up` is found with all it announced, in a file that only its user can read."""
    announce(running(os.getpid()))
    assert find_running() == running(os.getpid())
    (folder,) = runtime_folder.iterdir()
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_withdraw_leaves_nothing(runtime_folder: Path) -> None:
    """After its end neither file nor folder is left, and nothing is found."""
    announce(running(os.getpid()))
    withdraw(os.getpid())
    assert find_running() is None
    assert list(runtime_folder.iterdir()) == []


def test_withdraw_spares_another_ups_file() -> None:
    """An `up` that ends does not take away the file of one that started later."""
    announce(running(os.getpid()))
    withdraw(os.getpid() + 1)
    assert find_running() is not None


def test_a_dead_one_is_not_found() -> None:
    """What a killed `up` left behind does not count."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    announce(running(child.pid))
    assert find_running() is None


def test_nothing_is_found_and_nothing_made_when_none_ran(runtime_folder: Path) -> None:
    """Looking leaves no trace."""
    assert find_running() is None
    assert list(runtime_folder.iterdir()) == []


def test_a_folder_open_to_others_is_not_believed(runtime_folder: Path) -> None:
    """Somebody else could have written what lies in it: it is neither used nor read."""
    folder = runtime_folder / f"redbatch-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(PermissionError):
        announce(running(os.getpid()))
    (folder / "up.json").write_text(
        f'{{"pid": {os.getpid()}, "url": "", "redis_url": "redis://evil/0", "queue": "minilm"}}'
    )
    assert find_running() is None


def test_a_damaged_file_is_not_believed(runtime_folder: Path) -> None:
    """A file that is not ours, or half of one, is as good as none."""
    announce(running(os.getpid()))
    (runtime_folder / f"redbatch-{os.getuid()}" / "up.json").write_text('{"pid": 1')
    assert find_running() is None
