"""Runs commands in a terminal, and finds what others than the program wrote there to control it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping

from tests.waiting import wait_until

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HOSTILE = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)])) + f"\x1b[2J\x1b[31m\x1b]0;owned\x07\r\nforged{BIDI}"
"""All control characters and marks of direction, sequences that clear the screen, and a line that looks like output."""

STYLING = re.compile(r"\x1b\[(?!31m)(?:[\d;]*m|\?25[lh]|2K|1A)|\r(?=\n|\x1b\[)")
"""Of rich: colors, and what `Live` writes to draw again. Without red, which no command uses, and HOSTILE does."""

CONTROL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{BIDI}]")


class Terminal:
    """A terminal, and a command that runs in it."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self._master, terminal = os.openpty()
        os.set_blocking(self._master, False)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REDBATCH_")}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "redbatch", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            env=environment | {"TERM": "xterm-256color"} | variables,
            start_new_session=True,
        )
        os.close(terminal)
        self._output = b""

    @property
    def output(self) -> str:
        """What the command has written so far."""
        with contextlib.suppress(OSError):  # nothing at present, or the command has ended
            while data := os.read(self._master, 65_536):
                self._output += data
        return self._output.decode().replace("\r\n", "\n")

    async def stop(self) -> None:
        """Ends the command as Ctrl-C does, and reads the rest of its output."""
        self.process.terminate()
        await wait_until(lambda: bool(self.output) and self.process.poll() is not None, "it has ended", timeout_s=20)
        assert self.process.returncode == 0
        assert self.output

    def close(self) -> None:
        """Ends what still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@contextlib.contextmanager
def running_in_terminal(*arguments: str, **variables: str) -> Iterator[Terminal]:
    """Runs `redbatch` in a terminal during the block."""
    terminal = Terminal(*arguments, **variables)
    try:
        yield terminal
    finally:
        terminal.close()


def run_in_terminal(command: list[str], variables: Mapping[str, str], timeout_s: float = 60.0) -> str:
    """Runs `redbatch` with both outputs in a pseudo-terminal, and returns all that the terminal received."""
    master, terminal = os.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDBATCH_")}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "redbatch", *command],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env=environment | {"TERM": "xterm-256color", "COLUMNS": "200"} | dict(variables),
    )
    os.close(terminal)
    output = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(master, 65_536):
            output += data
    process.wait(timeout_s)
    os.close(master)
    return output.decode()


def foreign_controls(output: str) -> set[str]:
    """Returns the control characters in a terminal's output, except newlines and the styling of rich."""
    return set(CONTROL.findall(STYLING.sub("", output)))
