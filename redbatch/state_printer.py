"""Prints a state that a command reads, once or again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.live import Live

from redbatch.terminal import print_line

WATCH_EVERY_S = 1.0

State = TypeVar("State")


@contextmanager
def state_printer(
    console: Console, as_text: Callable[[State], RenderableType], as_json: Callable[[State], str], *, in_json: bool
) -> Iterator[Callable[[State], None]]:
    """Yields a function that prints a state: in place on a terminal, otherwise below the previous one.

    JSON may have several lines, or none.
    """
    if in_json:
        yield lambda state: _print_lines(as_json(state))
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda state: live.update(as_text(state), refresh=True)
    else:
        yield lambda state: console.print(as_text(state))


def _print_lines(text: str) -> None:
    for line in text.splitlines():
        print_line(line)


async def print_states(read: Callable[[], Awaitable[State]], show: Callable[[State], None], *, watch: bool) -> None:
    """Shows the state once or, if `watch`, every second until cancelled. Raises the errors of `read`."""
    show(await read())
    while watch:
        await asyncio.sleep(WATCH_EVERY_S)
        show(await read())
