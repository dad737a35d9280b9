"""The fork server, in a process that registers what Python runs at its exit."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import asdict, replace

from tests.unit.gpuworker.backends.options import OPTIONS

PROGRAM = """
import atexit
import sys
from gpuworker.engine.forkserver import main
atexit.register(print, "Python finalizes")
main(sys.argv[1:])
"""


def test_it_ends_without_finalization() -> None:
    """With torch, that takes up to seconds, for which the worker's end would wait."""
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        arguments = [str(theirs.fileno()), json.dumps(asdict(replace(OPTIONS, model="null")))]
        command = [sys.executable, "-c", PROGRAM, *arguments]
        ended = subprocess.run(command, pass_fds=[theirs.fileno()], check=True, capture_output=True, text=True)
    assert ended.stdout + ended.stderr == ""
