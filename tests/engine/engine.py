"""One Docker engine, with separate data, socket and containerd, maybe in a network namespace."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

from shared.process.parent_death import wrap_command
from tests.engine.commands import TIMEOUT_S, CommandError, run
from tests.engine.machine import CLIENT
from tests.engine.name_server import ADDRESS

START_S = 60.0
STOP_S = 60.0
POLL_S = 0.1


class Engine:
    """An engine while it is entered; its data outlive it.

    Args:
        folder: for its data, socket and log.
        namespace: the network namespace that it and its containers run in, which is also its host name; "": that of the
            machine, where it changes nothing: no bridge and no rules of the firewall. It can build images there.
        options: further options of dockerd.
    """

    def __init__(self, folder: Path, namespace: str = "", options: Sequence[str] = ()) -> None:
        self.folder = folder
        self.name = namespace or "builder"
        self._namespace = namespace
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: BinaryIO | None = None  # of its folder: a second run of the tests waits for the first

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which clients use this engine, as Debian's client of BuildKit."""
        return os.environ | {
            "DOCKER_HOST": f"unix://{self.folder}/docker.sock",
            "DOCKER_CONFIG": str(self.folder / "client"),
            "DOCKER_BUILDKIT": "1",
            "COMPOSE_DOCKER_CLI_BUILD": "1",
            "PATH": f"{Path(CLIENT).parent}:{os.environ['PATH']}",
        }

    @property
    def pid(self) -> int:
        """The process id of dockerd."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts dockerd and waits until it answers. Raises AssertionError: it ended; the message has its log."""
        self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        if self._lock is None:
            self._lock = (self.folder / "lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.folder / "pid").unlink(missing_ok=True)
        with (self.folder / "log").open("wb") as log:
            command = wrap_command(self._command(), signal.SIGTERM)
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + START_S
        while not self.answers():
            assert self._process.poll() is None, self.log_end()
            assert time.monotonic() < until, self.log_end()
            time.sleep(POLL_S)

    def _command(self) -> list[str]:
        folder = self.folder
        paths = [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
        # An own namespace in containerd, if the machine runs one: this engine then uses that.
        names = [f"--containerd-namespace=redbatch-{self.name}", f"--containerd-plugins-namespace=rbp-{self.name}"]
        command = ["dockerd", f"--host=unix://{folder}/docker.sock", *paths, *names, *self._options]
        if not self._namespace:
            return [*command, "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        # Unlike `ip netns exec`, nsenter leaves /sys as it is, where the control groups are.
        (folder / "resolv.conf").write_text(f"nameserver {ADDRESS}\n", encoding="utf-8")
        script = (
            'mount --bind "$1" /etc/resolv.conf && hostname "$0" && shift && exec nsenter --net="/run/netns/$0" "$@"'
        )
        return [
            "unshare",
            "--uts",
            "--mount",
            "sh",
            "-c",
            script,
            self._namespace,
            str(folder / "resolv.conf"),
            *command,
        ]

    def stop(self) -> None:
        """Ends dockerd with all containers; does nothing if it does not run."""
        self._end()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._end_containerd()

    def kill(self) -> None:
        """Ends dockerd by SIGKILL, and with it containerd. Containers go on, without an engine."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None
        self._end_containerd()

    def _end_containerd(self) -> None:
        """Ends a containerd that outlived dockerd."""
        with suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.kill(int((self.folder / "exec/containerd/containerd.pid").read_text()), signal.SIGKILL)

    def answers(self) -> bool:
        """Returns whether it answers."""
        with suppress(CommandError):
            return bool(self.docker("version", "--format", "{{.Server.Version}}", timeout_s=5))
        return False

    def docker(self, *words: str | Path, stdin: str = "", timeout_s: float = TIMEOUT_S, cwd: Path | None = None) -> str:
        """Runs the client and returns what it wrote, without the newline. Raises CommandError."""
        return run([CLIENT, *words], env=self.environment, stdin=stdin, timeout_s=timeout_s, cwd=cwd).strip()

    def inspect(self, name: str, kind: str = "container") -> dict[str, Any]:
        """Returns what the engine knows of a container, an image, a service... Raises CommandError: there is none."""
        found: list[dict[str, Any]] = json.loads(self.docker(kind, "inspect", name))
        return found[0]

    def has_image(self, name: str) -> bool:
        """Returns whether an image is there."""
        return bool(self.docker("image", "ls", "--quiet", name))

    def log_end(self) -> str:
        """Returns the end of dockerd's log."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-4_000:]
