"""The imports of the fork server, and its end, in separate processes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from tests.unit.gpuworker.backends.options import OPTIONS

IMPORT = """
import gc
import sys
from gpuworker.engine.forkserver import import_modules
sys.path.append(sys.argv[1])
import_modules(["one", "two"])
print(gc.isenabled(), gc.get_freeze_count() > 0)
"""
END = """
import atexit
import sys
from gpuworker.engine.forkserver import main
atexit.register(print, "Python finalizes")
main(sys.argv[1:])
"""


def test_no_garbage_is_collected_until_all_is_imported(tmp_path: Path) -> None:
    """A fifth of the imports would be scans of objects that stay; nor does an engine scan them later."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("import gc\nprint(gc.isenabled())\n", encoding="utf-8")
    command = [sys.executable, "-c", IMPORT, str(tmp_path)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["False", "False", "True True"]


def test_it_ends_without_finalization() -> None:
    """With torch, that takes up to seconds, for which the worker's end would wait."""
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        arguments = [str(theirs.fileno()), json.dumps(asdict(replace(OPTIONS, model="null")))]
        command = [sys.executable, "-c", END, *arguments]
        ended = subprocess.run(command, pass_fds=[theirs.fileno()], check=True, capture_output=True, text=True)
    assert ended.stdout + ended.stderr == ""
