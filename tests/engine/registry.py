"""A registry for the images, between the nodes."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from shared.process.parent_death import wrap_command
from tests import plain_http

START_S = 20.0

CONFIGURATION = """\
version: 0.1
log: {{level: error}}
storage:
  filesystem: {{rootdirectory: {folder}/images}}
  delete: {{enabled: true}}
http: {{addr: "{address}"}}
"""


@contextmanager
def registry(folder: Path, address: str) -> Iterator[None]:
    """Runs Debian's docker-registry at host:port for the time of the block; what it has stays in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yml"
    path.write_text(CONFIGURATION.format(folder=folder, address=address), encoding="utf-8")
    with (folder / "log").open("wb") as log:
        command = wrap_command(["docker-registry", "serve", str(path)], signal.SIGTERM)
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + START_S
        while not _answers(address):
            assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")
            assert time.monotonic() < until, "the registry does not answer"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _answers(address: str) -> bool:
    with suppress(httpx.TransportError):
        return plain_http.get(f"http://{address}/v2/").status_code == httpx.codes.OK
    return False
