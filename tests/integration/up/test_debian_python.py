"""`make run` in a fresh clone, with the Python of Debian 12: 3.11.2, for which Redis' client needs one more package."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests import plain_http
from tests.integration.up.up_process import Up
from tests.servers import skip
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.model, pytest.mark.timeout(1_200)]

ROOT = Path(__file__).parents[3]
PYTHON = Path("/usr/bin/python3")
INSTALL_S = 900.0


def is_debians() -> bool:
    """Returns whether this machine has that Python."""
    if not PYTHON.exists():
        return False
    output = subprocess.run([PYTHON, "--version"], check=True, capture_output=True, text=True).stdout
    return output.strip() == "Python 3.11.2"


async def test_make_run_serves(tmp_path: Path) -> None:
    """It installs what it needs, says that it is ready, answers, and ends. The clone has what is committed."""
    if not is_debians():
        skip(f"{PYTHON} is not Python 3.11.2, as in Debian 12")
    clone, log = tmp_path / "redbatch", tmp_path / "log"
    subprocess.run([shutil.which("git") or "git", "clone", "--quiet", ROOT, clone], check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MAKE"))}
    command = ["env", "--default-signal=INT", "make", "run", f"PYTHON={PYTHON}", "ARGS=--port 0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=clone, env=environment, stdout=output, stderr=subprocess.STDOUT, process_group=0
        )
    up = Up(process, log, clone)
    try:

        def has_come_to_an_end() -> bool:
            return bool(up.fact("stop")) or process.poll() is not None

        await wait_until(has_come_to_an_end, "the cluster is ready", timeout_s=INSTALL_S, poll_s=0.5)
        assert process.poll() is None, up.output
        url = up.fact("API").split(" ")[0]
        answer = plain_http.post(f"{url}/embed", json={"text": "hello"})
        assert (answer.status_code, len(answer.json()["embedding"])) == (200, 384), answer.text
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert "worker drained" in up.output, "make ends by the signal, as it should; its child as by Ctrl-C"
    assert "Traceback" not in up.output
