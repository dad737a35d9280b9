"""Command-line options that several commands share, so that each has one help text."""

from __future__ import annotations

from typing import Annotated

import typer

RedisUrl = Annotated[
    str | None,
    typer.Option(envvar="REDBATCH_REDIS_URL", help="URL of Redis. Default: the Redis of your running `redbatch up`."),
]
QueueName = Annotated[
    str | None, typer.Option("--queue", envvar="REDBATCH_QUEUE", help="Name of the queue.", show_default="minilm")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Watch = Annotated[bool, typer.Option("--watch", help="Repeat every second, until Ctrl-C.")]
Limit = Annotated[int, typer.Option("--most", min=1, help="Maximum number of rows; the newest are shown.")]


def command_group(help_text: str) -> typer.Typer:
    """Returns a group of subcommands that prints its help when called without one."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help=help_text)
