"""The folder that keeps the data of a private Redis."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from redbatch.up import data_dir
from redbatch.up.data_dir import KEY_FILE, LOCK_FILE, DataDir, DataDirError
from redbatch.up.local_redis import LocalRedis
from tests.servers import server_binary
from tests.waiting import wait_until


def test_a_new_or_empty_folder_becomes_private(tmp_path: Path) -> None:
    """A missing folder is created, an empty one is closed to others, and both may be used again."""
    (tmp_path / "empty").mkdir(mode=0o755)
    for name in ("empty", "new/deep", "empty"):
        with DataDir(tmp_path / name) as folder:
            assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
            assert stat.S_IMODE((folder.path / LOCK_FILE).stat().st_mode) == 0o600


def test_its_path_is_the_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `up` prints has no "..", also behind a link, where it means another folder than the text of the path."""
    (tmp_path / "far/folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/folder")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path / "far")
    for path, real in (("../data", "data"), (f"{tmp_path}/link/../data", "far/data")):
        with DataDir(Path(path)) as folder:
            assert str(folder.path) == str(tmp_path.resolve() / real)
    with pytest.raises(DataDirError, match="name another --data-dir"):
        DataDir(tmp_path / "loop")


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    """A folder that holds other files keeps its mode, and a path that cannot be a folder is an error that says so."""
    (tmp_path / "letter").write_text("mine")
    mode = tmp_path.stat().st_mode
    with pytest.raises(DataDirError, match="holds other files: name an empty or a new folder"):
        DataDir(tmp_path)
    assert tmp_path.stat().st_mode == mode
    with pytest.raises(DataDirError, match="name another --data-dir"):
        DataDir(tmp_path / "letter")


def test_one_process_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is open, another attempt fails with the process that uses it; afterwards it succeeds."""
    monkeypatch.setattr(data_dir, "LOCK_WAIT_S", 0.1)
    with DataDir(tmp_path / "data"), pytest.raises(DataDirError, match=rf"\(process {os.getpid()}\): stop that one"):
        DataDir(tmp_path / "data")
    DataDir(tmp_path / "data").close()


def test_the_api_key_is_private(tmp_path: Path) -> None:
    """The key comes back, and only the user may read its file."""
    with DataDir(tmp_path / "data") as folder:
        assert folder.read_api_key() == ""
        folder.write_api_key("id.secret")
        assert folder.read_api_key() == "id.secret"
        assert stat.S_IMODE((folder.path / KEY_FILE).stat().st_mode) == 0o600


def test_errors_of_the_file_system_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key file that is not text counts as none; a lock or a key that the file system refuses is a DataDirError."""
    with DataDir(tmp_path / "data") as folder:
        (folder.path / KEY_FILE).write_bytes(b"\xff")
        assert folder.read_api_key() == ""
        (folder.path / KEY_FILE).unlink()
        (folder.path / KEY_FILE).mkdir()
        with pytest.raises(DataDirError, match=r"api-key cannot be written \(Is a directory\)"):
            folder.write_api_key("id.secret")

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(DataDirError, match=r"cannot be used \(No locks available\)"):
        DataDir(tmp_path / "data")


async def test_the_server_keeps_its_data_and_a_password(tmp_path: Path) -> None:
    """After SIGKILL, and after a stop, the next server has the data; a password of its command line still holds."""
    options = ["--requirepass", "secret"]
    with DataDir(tmp_path / "data") as folder:
        server = LocalRedis(server_binary(), options=options, data_dir=folder)
        server.start()
        with redis.Redis(port=server.port, password="secret") as client:
            client.set("key", "kept")
            os.kill(server.pid, signal.SIGKILL)
            await wait_until(lambda: not server.is_running(), "the server has died")
            server.start()
            assert client.get("key") == b"kept"
        with redis.Redis(port=server.port) as client, pytest.raises(redis.AuthenticationError):
            client.get("key")
        server.stop()
        with (
            LocalRedis(server_binary(), options=options, data_dir=folder) as second,
            redis.Redis(port=second.port, password="secret") as client,
        ):
            assert client.get("key") == b"kept"


async def test_a_server_that_outlives_its_owner_keeps_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a killed process is in use until its server has ended too, so that no two servers write there."""
    monkeypatch.setattr(data_dir, "LOCK_WAIT_S", 0.1)
    code = (
        "import sys, signal; from pathlib import Path; from redbatch.up.data_dir import DataDir; "
        "from redbatch.up.local_redis import LocalRedis; "
        "s = LocalRedis(sys.argv[1], data_dir=DataDir(Path(sys.argv[2]))); s.start(); "
        "print(s.pid, flush=True); signal.pause()"
    )
    words = [sys.executable, "-c", code, str(server_binary()), str(tmp_path / "data")]
    owner = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    server_pid = int(owner.stdout.readline())
    os.kill(server_pid, signal.SIGSTOP)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    with pytest.raises(DataDirError, match="in use"):
        DataDir(tmp_path / "data")
    os.kill(server_pid, signal.SIGCONT)
    monkeypatch.setattr(data_dir, "LOCK_WAIT_S", 20.0)
    DataDir(tmp_path / "data").close()
    await wait_until(lambda: not Path(f"/proc/{server_pid}/cmdline").exists(), "the server has ended")


def test_data_of_a_newer_server_are_not_ignored(tmp_path: Path) -> None:
    """A server older than Redis 7 would start without the files of a newer one: it is refused."""
    old = tmp_path / "old-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=0'\n")
    old.chmod(0o700)
    with DataDir(tmp_path / "data") as folder:
        folder.check_server(old)
        (folder.path / "appendonlydir").mkdir()
        with pytest.raises(DataDirError, match="written by Redis 7 or newer"):
            folder.check_server(old)
        old.write_text("#!/bin/sh\necho 'Valkey server v=8.0.1 sha=0'\n")
        folder.check_server(old)
