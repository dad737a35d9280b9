"""Command-line options that several commands share, so that each has one help text."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from shared.model_names import queue_slug
from shared.settings import QUEUE_PATTERN, QUEUE_WORDS


def check_queue(name: str | None) -> str | None:
    """Returns a name that a queue may have. Raises BadParameter for any other."""
    if name is not None and not re.fullmatch(QUEUE_PATTERN, name):
        hint = f"; a model of that name has the queue {queue_slug(name)}" if name else ""
        raise typer.BadParameter(f"it takes {QUEUE_WORDS}, got {name!r}{hint}")
    return name


RedisUrl = Annotated[
    str | None,
    typer.Option(
        envvar="REDBATCH_REDIS_URL",
        help="URL of Redis. Default: those of REDBATCH_REDIS_SHARDS, or of your running `redbatch up`.",
        is_eager=True,  # `_prefer_up` reads it
    ),
]


def _prefer_up(context: typer.Context, port: int | None) -> int | None:
    """Lets --up override the variable of --redis-url. Raises BadParameter: both are options."""
    source = context.get_parameter_source("redis_url")
    if port is not None and source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter("it finds the Redis of a running `redbatch up`: leave out --redis-url")
    if port is not None and "redis_url" in context.params:
        context.params["redis_url"] = None
    return port


UpPort = Annotated[
    int | None,
    typer.Option(
        "--up",
        metavar="PORT",
        callback=_prefer_up,
        help="Use your running `redbatch up` whose API has this port, if several are running.",
    ),
]
QueueName = Annotated[
    str | None,
    typer.Option(
        "--queue",
        envvar="REDBATCH_QUEUE",
        callback=check_queue,
        help="Name of the queue.",
        show_default="that of your `redbatch up`; minilm with --redis-url",
    ),
]
OnlyQueue = Annotated[
    str | None,
    typer.Option(
        "--queue", envvar="REDBATCH_QUEUE", callback=check_queue, help="Show this queue only.", show_default="all"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
WholeJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Watch = Annotated[bool, typer.Option("--watch", help="Repeat every second, until Ctrl-C.")]
Limit = Annotated[int, typer.Option("--most", min=1, help="Maximum number of rows; the newest are shown.")]


def command_group(help_text: str) -> typer.Typer:
    """Returns a group of subcommands that prints its help when called without one."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help=help_text)
