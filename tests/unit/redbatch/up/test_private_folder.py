"""The private folder of a Redis server: which folders are removed after their processes were killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from redbatch.up import private_folder
from redbatch.up.private_folder import FORMER_AGE_S, LOCK_FILE, PREFIX, PrivateFolder, remove_abandoned_folders


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, both for long and for short paths."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(private_folder, "SHORT_BASE", str(tmp_path))
    return tmp_path


def abandon(base: Path, name: str) -> Path:
    """Creates a folder whose lock no process holds; returns its path."""
    path = base / f"{PREFIX}{name}"
    path.mkdir(mode=0o700)
    (path / LOCK_FILE).touch()
    (path / "redis.log").write_text("left")
    return path


def test_only_abandoned_folders_of_this_user_are_removed(base: Path) -> None:
    """Folders stay that are in use, have no lock, are open to others, or are behind a symbolic link."""
    used = PrivateFolder()
    left, no_lock, shared = abandon(base, "left"), abandon(base, "no-lock"), abandon(base, "shared")
    (no_lock / LOCK_FILE).unlink()
    shared.chmod(0o755)
    elsewhere = base / "elsewhere"
    abandon(base, "target").rename(elsewhere)
    link = base / f"{PREFIX}link"
    link.symlink_to(elsewhere)
    remove_abandoned_folders()
    assert not left.exists()
    assert all((each / "redis.log").exists() for each in (no_lock, shared, elsewhere))
    assert (link.is_symlink(), used.path.exists()) == (True, True)
    used.remove()
    assert not used.path.exists()


def former(base: Path, name: str, age_s: float, *files: str) -> Path:
    """Creates a folder of a version that locked none, with these files, last changed `age_s` ago."""
    path = base / f"{PREFIX}{name}"
    path.mkdir(mode=0o700)
    for each in files:
        (path / each).touch()
    os.utime(path, times=(time.time() - age_s,) * 2)
    return path


def test_old_folders_of_earlier_versions_are_removed(base: Path) -> None:
    """These have no lock: they stay while they are new, hold a file of another kind, or a server answers."""
    log_only = former(base, "log", 2 * FORMER_AGE_S, "redis.log")
    new = former(base, "new", 60, "redis.log")
    foreign = former(base, "foreign", 2 * FORMER_AGE_S, "redis.log", "appendonly.aof")
    used, left = base / f"{PREFIX}used", base / f"{PREFIX}left"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as ended:
        for each, path in ((server, used), (ended, left)):
            path.mkdir(mode=0o700)
            each.bind(str(path / "redis.sock"))
            os.utime(path, times=(0, 0))
        server.listen()
        ended.close()
        remove_abandoned_folders()
        assert [each.exists() for each in (log_only, left)] == [False, False]
        assert [each.exists() for each in (new, foreign, used)] == [True, True, True]


def test_a_folder_of_another_user_stays(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner is not this user, who may be root and could remove it."""
    left = abandon(base, "left")
    monkeypatch.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
    remove_abandoned_folders()
    assert left.exists()


def test_a_process_that_inherits_the_lock_keeps_the_folder(base: Path) -> None:
    """A server that outlives the process that started it still uses its folder."""
    folder = PrivateFolder()
    words = [sys.executable, "-c", "input()"]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[folder.descriptor])
    os.close(folder.descriptor)
    remove_abandoned_folders()
    assert folder.path.exists()
    server.communicate(b"\n")
    remove_abandoned_folders()
    assert list(base.iterdir()) == []
