"""The stop of a peer, and what Triton needs of the Python that runs it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import psutil
import pytest

from bench.peers.server import stop
from bench.peers.shared_library import python_libraries

SLOW_STOP_S = 3.0
"""Triton's stop takes two to four seconds."""

SERVER = f"""
import pathlib, signal, subprocess, sys, time
shared = pathlib.Path(sys.argv[1])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

def end(*_):
    time.sleep({SLOW_STOP_S})
    shared.unlink()
    sys.exit()

signal.signal(signal.SIGTERM, end)
shared.write_text("shared memory")
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_server_that_stops_slowly_removes_what_outlives_it(tmp_path: Path) -> None:
    """It has the time to remove its shared memory; the processes that it leaves behind are killed."""
    shared = tmp_path / "shared"
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(shared)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as out:
        child = int(out.readline())
        assert shared.exists()
        stop(process)
    assert process.returncode == 0
    assert not shared.exists()
    assert not psutil.pid_exists(child)


def test_triton_gets_the_folder_of_the_library_of_the_python_that_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton links libpython, and would find that of the system, of another version than the standard library."""
    monkeypatch.setattr(sysconfig, "get_config_var", {"LIBDIR": str(tmp_path)}.get)
    library = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    with pytest.raises(SystemExit, match=rf"^Triton needs .* {tmp_path}/{library} does not exist") as raised:
        python_libraries()
    assert "\n" not in str(raised.value)
    (tmp_path / library).touch()
    assert python_libraries() == str(tmp_path)
