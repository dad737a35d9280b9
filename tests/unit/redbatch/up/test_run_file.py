"""The run files by which other commands find the running `up` of a user."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from redbatch.up.run_file import Announcement, RunFile, find_running_ups, wait_until_ended


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory for this test alone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def run_file_of(port: int, pid: int = 0) -> RunFile:
    """Returns the run file of an `up` of this or another process, with its API on a port."""
    return RunFile(pid or os.getpid(), f"http://127.0.0.1:{port}", "redis://:secret@127.0.0.1:1/0", "minilm")


def leave_file(run_file: RunFile) -> None:
    """Writes a run file in a process that ends without removing it."""
    program = f"from redbatch.up.run_file import *; import os; Announcement({run_file!r}); os._exit(0)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_living_up_is_found(runtime_folder: Path) -> None:
    """A living `up` is found with its whole run file, which only its user can read."""
    announcement = Announcement(run_file_of(8080))
    assert find_running_ups() == [run_file_of(8080)]
    (folder,) = runtime_folder.iterdir()
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    announcement.withdraw()


def test_an_up_that_stops_is_not_found_and_keeps_its_lock(runtime_folder: Path) -> None:
    """The processes that have joined it wait for the lock: until it is withdrawn."""
    announcement = Announcement(run_file_of(8080))
    (path,) = runtime_folder.rglob("up-*.json")
    with path.open() as file:
        announcement.hide()
        assert find_running_ups() == []
        assert list(runtime_folder.iterdir()) == []
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        announcement.withdraw()
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    wait_until_ended(run_file_of(8080))


def test_several_are_found_until_each_ends(runtime_folder: Path) -> None:
    """Each `up` has its own file, which it alone removes; after the last neither file nor folder is left."""
    first, second = run_file_of(8081), run_file_of(8080, pid=1)
    announcements = [Announcement(first), Announcement(second)]
    assert find_running_ups() == [second, first]
    announcements[1].withdraw()
    assert find_running_ups() == [first]
    announcements[0].withdraw()
    assert find_running_ups() == []
    assert list(runtime_folder.iterdir()) == []


def test_the_file_of_a_killed_up_is_removed(runtime_folder: Path) -> None:
    """The file that a killed `up` left is ignored and removed, even if another process has its process id now."""
    leave_file(run_file_of(8080, pid=os.getppid()))
    alive = Announcement(run_file_of(8081))
    folder = runtime_folder / f"redbatch-{os.getuid()}"
    assert len(list(folder.iterdir())) == 2
    assert find_running_ups() == [run_file_of(8081)]
    assert len(list(folder.iterdir())) == 1
    alive.withdraw()


def test_a_search_without_a_run_file_creates_nothing(runtime_folder: Path) -> None:
    """Without a run file, the search finds nothing and creates no file or folder."""
    assert find_running_ups() == []
    assert list(runtime_folder.iterdir()) == []


def test_a_folder_open_to_others_is_not_used(runtime_folder: Path) -> None:
    """A folder that others can write to is neither written nor read: its content may be theirs."""
    announcement = Announcement(run_file_of(8080))
    folder = runtime_folder / f"redbatch-{os.getuid()}"
    folder.chmod(0o777)
    with pytest.raises(PermissionError):
        Announcement(run_file_of(8081, pid=1))
    assert find_running_ups() == []
    folder.chmod(0o700)
    assert find_running_ups() == [run_file_of(8080)]
    announcement.withdraw()


def test_the_redis_of_an_earlier_version_counts_as_private(runtime_folder: Path) -> None:
    """Its run file does not say whether it is; a worker that joins then ends with it, as most should."""
    announcement = Announcement(replace(run_file_of(8080), has_private_redis=False))
    (path,) = runtime_folder.rglob("up-*.json")
    assert [each.has_private_redis for each in find_running_ups()] == [False]
    content = json.loads(path.read_text())
    del content["has_private_redis"]
    path.write_text(json.dumps(content))
    assert [each.has_private_redis for each in find_running_ups()] == [True]
    announcement.withdraw()


@pytest.mark.parametrize("content", ['{"pid": 1', json.dumps(asdict(run_file_of(1)) | {"more": 1})])
def test_a_damaged_file_is_ignored(content: str, runtime_folder: Path) -> None:
    """A run file that is incomplete or of another version counts as missing, and others are found."""
    damaged, whole = Announcement(run_file_of(8080)), Announcement(run_file_of(8081, pid=1))
    (runtime_folder / f"redbatch-{os.getuid()}" / f"up-{os.getpid()}.json").write_text(content)
    assert find_running_ups() == [run_file_of(8081, pid=1)]
    damaged.withdraw()
    whole.withdraw()
