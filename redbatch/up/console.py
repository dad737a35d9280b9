"""What `redbatch up` prints: the lines of its children with their names in front, progress, and how to use it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence

from rich.console import Console
from rich.status import Status
from rich.text import Text

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
NAME_WIDTH = 9
PLAIN_PROGRESS_S = 10
CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def readable(text: str, *, brief: bool = False) -> str:
    """Returns a JSON log line as people read it (`12:00:01 info  ready model=minilm`), any other text as it is.

    `brief` leaves out time and level.
    """
    try:
        event = json.loads(text)
        message = event.pop("msg")
    except (ValueError, KeyError, TypeError, AttributeError):
        return text
    time = str(event.pop("ts", ""))[11:19]
    level = str(event.pop("level", ""))
    event.pop("service", None)
    trace = event.pop("exception", None)
    rest = [f"{key}={value}" for key, value in event.items()]
    parts = [] if brief else [time, f"{level:<7}"]
    line = " ".join([*parts, str(message), *rest])
    return f"{line}\n{trace}" if trace else line


class PatientConsole(Console):
    """A console whose reader may leave (`redbatch up | head`): it falls silent, where rich would end the process."""

    def on_broken_pipe(self) -> None:
        """Prints nothing from now on."""
        self.quiet = True


class Screen:
    """Stdout: on a terminal with colours and a spinner, elsewhere plain lines, the children's exactly as printed."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or PatientConsole(highlight=False)
        self._colours: dict[str, str] = {}
        self._status: Status | None = None
        self._next_progress_s = 0.0

    def line(self, name: str, text: str) -> None:
        """Prints a line of a child."""
        colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        prefix = f"{name:<{NAME_WIDTH}} | "
        if self._console.is_terminal:
            # What a log line quotes must not steer the terminal.
            text = CONTROL.sub("", readable(text))
        for each in text.split("\n"):
            self._print(Text.assemble((prefix, colour), each))

    def say(self, text: str) -> None:
        """Prints a line of `up` itself."""
        self.line("up", text)

    def progress(self, text: str, elapsed_s: float) -> None:
        """Shows what is waited for: in the spinner, or now and then as a line."""
        if not self._console.is_terminal:
            if elapsed_s >= self._next_progress_s:
                self._next_progress_s = elapsed_s + PLAIN_PROGRESS_S
                self.say(f"{text} ({elapsed_s:.0f} s)")
            return
        message = f"{text} ({elapsed_s:.0f} s)"
        if self._status is None:
            self._status = self._console.status(message)
            self._status.start()
        self._status.update(message)

    def end_progress(self) -> None:
        """Takes the spinner away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def facts(self, title: str, facts: Sequence[tuple[str, str]]) -> None:
        """Prints a title and labelled lines. No frame around them: each line is there to be copied."""
        self.end_progress()
        width = max(len(label) for label, _ in facts)
        self._print(Text(""))
        self._print(Text(title, style="bold green"))
        for label, value in facts:
            self._print(Text.assemble((f"  {label:<{width}}  ", "bold"), value))
        self._print(Text(""))

    def _print(self, text: Text) -> None:
        with contextlib.suppress(OSError):  # a full disk is no reason to stop serving
            self._console.print(text, soft_wrap=True)
            self._console.file.flush()
