"""Records a terminal in which a worker and Redis are killed under load: `make recording` writes the SVG of the README.

Everything in it is printed by a real run. Each line of the picture appears when it was printed, and the recording
repeats. rich draws the lines; this module adds their times.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from io import StringIO
from typing import NamedTuple

import psutil
from rich.console import Console
from rich.text import Text

from bench.machine import ROOT

PATH = ROOT / "docs" / "images" / "kills.svg"
WIDTH = 118
LOAD_S, KILL_WORKER_S, KILL_REDIS_S = 18, 5, 11
PAUSE_S = 6.0
"""How long the last line stays before the recording repeats."""

READY_TIMEOUT_S = 120.0


class Line(NamedTuple):
    """A line of the terminal, and when it was printed (s since the start of the recording)."""

    at_s: float
    text: str


class Recorder:
    """The lines of the terminal, in the order in which they were printed."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._began = time.monotonic()

    def add(self, text: str) -> None:
        """Adds a line that is printed now."""
        self.lines.append(Line(time.monotonic() - self._began, text.rstrip()))


def _find(up: psutil.Process, wanted: Callable[[str], bool]) -> psutil.Process:
    """Returns the first descendant whose command line is wanted. Raises LookupError."""
    for process in up.children(recursive=True):
        if wanted(" ".join(process.cmdline())):
            return process
    raise LookupError("redbatch up has no such process")


async def _start_up() -> tuple[asyncio.subprocess.Process, str]:
    """Starts a cluster of two workers; returns the process, and the URL of its API once it is ready."""
    up = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "redbatch", "up", "--workers", "2", "--port", "0", "--log-format", "text"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert up.stdout is not None  # noqa: S101 - it is piped
    url = ""
    async with asyncio.timeout(READY_TIMEOUT_S):
        async for line in up.stdout:
            text = line.decode().split()
            if text[:1] == ["API"]:
                url = text[1]
            if text[:1] == ["stop"]:
                return up, url
    raise RuntimeError("redbatch up ended before it was ready")


async def _copy(stream: asyncio.StreamReader, recorder: Recorder) -> None:
    async for line in stream:
        if text := line.decode(errors="replace").strip("\n"):
            recorder.add(text)


async def _kill(after_s: float, recorder: Recorder, name: str, process: Callable[[], psutil.Process]) -> None:
    await asyncio.sleep(after_s)
    victim = process()
    recorder.add(f"$ kill -9 {victim.pid}    # {name}")
    victim.send_signal(signal.SIGKILL)


async def record() -> Sequence[Line]:
    """Runs the load and the kills; returns what the terminal showed."""
    up, url = await _start_up()
    cluster = psutil.Process(up.pid)
    recorder = Recorder()
    recorder.add("$ redbatch up --workers 2")
    recorder.add(f"$ redbatch bench {url} --clients 16 --duration {LOAD_S}s")
    words = (sys.executable, "-m", "redbatch", "bench", url, "--clients", "16", "--duration", f"{LOAD_S}s")
    environment = os.environ | {"COLUMNS": str(WIDTH)}
    try:
        load = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, env=environment)
        assert up.stdout is not None  # noqa: S101 - both are piped
        assert load.stdout is not None  # noqa: S101
        log = asyncio.create_task(_copy(up.stdout, recorder))
        await asyncio.gather(
            _copy(load.stdout, recorder),
            _kill(KILL_WORKER_S, recorder, "a worker", lambda: _find(cluster, lambda line: "redbatch worker" in line)),
            _kill(KILL_REDIS_S, recorder, "Redis", lambda: _find(cluster, lambda line: "redis-server" in line)),
        )
        log.cancel()
    finally:
        up.send_signal(signal.SIGINT)
        await up.wait()
    return recorder.lines


def draw(lines: Sequence[Line]) -> str:
    """Returns the lines as an SVG in which each appears at its time; without animation all are visible."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        style = "bold green" if line.text.startswith("$") else ""
        console.print(Text(line.text[:WIDTH], style=style), no_wrap=True, crop=True)
    svg = console.export_svg(title="A worker and Redis are killed under load")
    whole_s = lines[-1].at_s + PAUSE_S

    def animate(match: re.Match[str]) -> str:
        share = lines[min(int(match[1]), len(lines) - 1)].at_s / whole_s
        times = f"0;{share:.4f};{share:.4f};1"
        return (
            f'{match[0]}<animate attributeName="opacity" values="0;0;1;1" keyTimes="{times}" '
            f'dur="{whole_s:.1f}s" repeatCount="indefinite"/>'
        )

    return re.sub(r'<text [^>]*clip-path="url\(#[\w-]*line-(\d+)\)">', animate, svg)


def main() -> None:
    """Records, writes the picture, and prints what it shows."""
    lines = asyncio.run(record())
    PATH.write_text(draw(lines), encoding="utf-8")
    for line in lines:
        print(f"{line.at_s:5.1f} s  {line.text}")


if __name__ == "__main__":
    main()
