"""Output of `redbatch up`: the lines of its children prefixed with their names, progress, and usage."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Sequence

from rich.console import Console
from rich.status import Status
from rich.text import Text

from redbatch.tables import labelled_line
from redbatch.terminal import PrintableConsole
from shared.process.log_text import format_event, printable

COLORS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
NAME_WIDTH = 9
PLAIN_PROGRESS_S = 10
TIME_AND_LEVEL = re.compile(r"^\d\d:\d\d:\d\d [a-z]+ +")


def format_log_line(text: str, *, brief: bool = False) -> str:
    """Returns a JSON log line in readable form (`12:00:01 info  ready model=minilm`), any other text unchanged.

    `brief` omits time and level, also of a record that is in readable form already.
    """
    try:
        return format_event(json.loads(text), brief=brief)
    except (ValueError, KeyError, TypeError):
        return TIME_AND_LEVEL.sub("", text) if brief else text


def curl_line(url: str, api_key: str = "", *, function: bool = False) -> str:
    """Returns a command line that embeds one text, or calls a `function`; with the API key, unless that is empty."""
    path, body = ("predict", '{"input": 1}') if function else ("embed", '{"text": "hello"}')
    authorization = ["-H", f"Authorization: Bearer {api_key}"] if api_key else []
    data = ["-H", "Content-Type: application/json", "-d", body]
    return shlex.join(["curl", "-s", f"{url}/{path}", *authorization, *data])


class PipeSafeConsole(PrintableConsole):
    """A console whose reader may close the pipe (`redbatch up | head`): it stops printing.

    Rich would end the process.
    """

    def on_broken_pipe(self) -> None:
        """Prints nothing from now on."""
        self.quiet = True


class ClusterConsole:
    """Stdout of a cluster: colors and a spinner on a terminal, otherwise plain lines.

    Without a terminal, the lines of children appear as printed, with control characters escaped as on a terminal; with
    `as_text`, records become readable there too.
    """

    def __init__(self, console: Console | None = None, *, as_text: bool = False) -> None:
        self._console = console or PipeSafeConsole(highlight=False)
        self._as_text = as_text or self._console.is_terminal
        self._colors: dict[str, str] = {}
        self._status: Status | None = None
        self._step = ""
        self._next_progress_s = 0.0

    def print_child_line(self, name: str, text: str) -> None:
        """Prints a line of a child, prefixed with its name."""
        color = self._colors.setdefault(name, COLORS[len(self._colors) % len(COLORS)])
        prefix = f"{name:<{NAME_WIDTH}} | "
        if self._as_text:
            text = format_log_line(text)
        for line in printable(text).split("\n"):
            self._print(Text.assemble((prefix, color), line))

    def print_line(self, text: str) -> None:
        """Prints a line of `up` itself."""
        self.print_child_line("up", text)

    def show_progress(self, text: str, elapsed_s: float) -> None:
        """Shows the step of the start: in the spinner, or as a line for each step and every PLAIN_PROGRESS_S."""
        if not self._console.is_terminal:
            if text != self._step or elapsed_s >= self._next_progress_s:
                self._step, self._next_progress_s = text, elapsed_s + PLAIN_PROGRESS_S
                self.print_line(f"{text} ({elapsed_s:.0f} s)")
            return
        message = f"{text} ({elapsed_s:.0f} s)"
        if self._status is None:
            self._status = self._console.status(message)
            self._status.start()
        self._status.update(message)

    def clear_progress(self) -> None:
        """Removes the spinner."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def print_facts(self, title: str, facts: Sequence[tuple[str, str]]) -> None:
        """Prints a title and labelled lines, without a frame, so that each line can be copied."""
        self.clear_progress()
        width = max(len(label) for label, _ in facts)
        self._print(Text(""))
        self._print(Text(title, style="bold green"))
        for label, value in facts:
            self._print(labelled_line(label, value, width))
        self._print(Text(""))

    def _print(self, text: Text) -> None:
        with contextlib.suppress(OSError):  # a full disk must not stop the cluster
            self._console.print(text, soft_wrap=True)
            self._console.file.flush()
