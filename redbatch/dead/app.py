"""The commands below `redbatch dead`: what they take and what they say."""

from __future__ import annotations

from typing import Annotated

import typer

from shared.process.settings import EXIT_CONFIGURATION, complain

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Look after dead letters: entries that were given up.

    An engine that dies takes its batch with it. Each entry of that runs again,
    with nothing beside it. An entry in whose runs the engine died three times
    (--max-attempts of the worker) is answered input_failed, and kept here: the
    last 200 of them (--max-dead-letters).

    redbatch dead list

    redbatch dead show 1732190000000-0

    redbatch dead requeue --all
    """,
)

RedisUrl = Annotated[
    str | None,
    typer.Option(envvar="REDBATCH_REDIS_URL", help="Redis to ask; your running `redbatch up` when not set."),
]
QueueName = Annotated[
    str | None, typer.Option("--queue", envvar="REDBATCH_QUEUE", help="Name of the queue.", show_default="minilm")
]
Json = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As `list` shows them.")]


@app.command("list")
def list_(
    redis_url: RedisUrl = None,
    queue: QueueName = None,
    most: Annotated[int, typer.Option(min=1, help="Show the last so many.")] = 20,
    in_json: Json = False,
) -> None:
    """List dead letters, newest first."""
    from redbatch.dead.command import show_all
    from redbatch.queue_target import Where

    raise typer.Exit(show_all(Where(redis_url, queue), most, in_json=in_json))


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")],
    redis_url: RedisUrl = None,
    queue: QueueName = None,
    show_text: Annotated[bool, typer.Option("--show-text", help="Show the inputs too. They are users' text.")] = False,
    in_json: Json = False,
) -> None:
    """Show one whole, with the length and digest of each input."""
    from redbatch.dead.command import show_one
    from redbatch.queue_target import Where

    raise typer.Exit(show_one(Where(redis_url, queue), letter_id, with_text=show_text, in_json=in_json))


@app.command()
def requeue(
    letter_ids: Ids = None,
    redis_url: RedisUrl = None,
    queue: QueueName = None,
    every: Annotated[bool, typer.Option("--all", help="All of them, oldest first.")] = False,
    timeout_s: Annotated[float, typer.Option(min=0.1, max=300, help="Wait so long for each.")] = 60.0,
) -> None:
    """Run them again, and say what came of it.

    After the model or its memory was mended, say. Nobody waits for the vectors any more: this shows whether they can be
    had. What is answered is deleted here; what is not, stays. The exit code is 1 if one was not answered.
    """
    from redbatch.dead.command import requeue as run_requeue
    from redbatch.queue_target import Where

    _need_ids(letter_ids, every=every)
    raise typer.Exit(run_requeue(Where(redis_url, queue), letter_ids or [], timeout_s, every=every))


@app.command()
def purge(
    letter_ids: Ids = None,
    redis_url: RedisUrl = None,
    queue: QueueName = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete them."""
    from redbatch.dead.command import purge as run_purge
    from redbatch.queue_target import Where

    _need_ids(letter_ids, every=every)

    def sure(number: int) -> bool:
        return yes or typer.confirm(f"Delete {number:,} dead letter{'s' if number != 1 else ''} for good?")

    raise typer.Exit(run_purge(Where(redis_url, queue), letter_ids or [], every=every, sure=sure))


def _need_ids(letter_ids: list[str] | None, *, every: bool) -> None:
    if bool(letter_ids) == every:
        complain("name some ids, or give --all")
        raise typer.Exit(EXIT_CONFIGURATION)
