"""The subcommands of `redbatch dead`: their options and help texts."""

from __future__ import annotations

from typing import Annotated

import typer

from redbatch.exit_codes import report_misuse
from redbatch.options import Json, Limit, QueueName, RedisUrl, UpPort, Yes, command_group

app = command_group(
    """Inspect, requeue and delete dead letters: entries that workers gave up.

    When an engine dies, its batch is lost. Each entry of the batch runs again,
    alone. An entry during whose runs the engine died three times (--max-attempts
    of the worker) is answered input_failed and becomes a dead letter. So does an
    input of a function that failed at its last retry (retry_on of the class).
    The last 200 dead letters are kept (--max-dead-letters).

    redbatch dead list

    redbatch dead show 1732190000000-0

    redbatch dead requeue --all
    """
)

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids from `redbatch dead list`.")]


@app.command("list")
def list_(
    redis_url: RedisUrl = None,
    queue: QueueName = None,
    up: UpPort = None,
    limit: Limit = 20,
    in_json: Json = False,
) -> None:
    """List dead letters, newest first."""
    from redbatch.dead.command import list_letters
    from redbatch.queue_target import QueueTarget

    raise typer.Exit(list_letters(QueueTarget(redis_url, queue, up), limit, in_json=in_json))


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="Id from `redbatch dead list`.")],
    redis_url: RedisUrl = None,
    queue: QueueName = None,
    up: UpPort = None,
    show_text: Annotated[
        bool, typer.Option("--show-text", help="Show the inputs too. They are data of users.")
    ] = False,
    in_json: Json = False,
) -> None:
    """Show one dead letter in full, with the length and digest of each input."""
    from redbatch.dead.command import show_letter
    from redbatch.queue_target import QueueTarget

    raise typer.Exit(show_letter(QueueTarget(redis_url, queue, up), letter_id, with_text=show_text, in_json=in_json))


@app.command()
def requeue(  # noqa: PLR0913, PLR0917 - one for each option
    letter_ids: Ids = None,
    redis_url: RedisUrl = None,
    queue: QueueName = None,
    up: UpPort = None,
    all_letters: Annotated[bool, typer.Option("--all", help="Requeue all dead letters, oldest first.")] = False,
    timeout_s: Annotated[float, typer.Option(min=0.1, max=300, help="Maximum wait for each answer.")] = 60.0,
    in_json: Json = False,
) -> None:
    """Run dead letters again and print the outcome of each.

    For example, after the model was repaired or given more memory. No client
    waits for the vectors any more: the run only shows whether the inputs can be
    embedded. A dead letter that is answered is deleted; one that is given up
    again is replaced by a new one; any other stays. The exit code is 1 if one
    was not answered.
    """
    from redbatch.dead.command import requeue_letters
    from redbatch.queue_target import QueueTarget

    _require_ids(letter_ids, all_letters=all_letters)
    target, ids = QueueTarget(redis_url, queue, up), letter_ids or []
    raise typer.Exit(requeue_letters(target, ids, timeout_s, all_letters=all_letters, in_json=in_json))


@app.command()
def purge(
    letter_ids: Ids = None,
    redis_url: RedisUrl = None,
    queue: QueueName = None,
    up: UpPort = None,
    all_letters: Annotated[bool, typer.Option("--all", help="Delete all dead letters.")] = False,
    yes: Yes = False,
) -> None:
    """Delete dead letters."""
    from redbatch.dead.command import purge_letters
    from redbatch.queue_target import QueueTarget

    _require_ids(letter_ids, all_letters=all_letters)

    def confirm(number: int) -> bool:
        return yes or typer.confirm(f"Delete {number:,} dead letter{'s' if number != 1 else ''} permanently?", err=True)

    raise typer.Exit(
        purge_letters(QueueTarget(redis_url, queue, up), letter_ids or [], all_letters=all_letters, confirm=confirm)
    )


def _require_ids(letter_ids: list[str] | None, *, all_letters: bool) -> None:
    if bool(letter_ids) == all_letters:
        raise typer.Exit(report_misuse("give either ids or --all"))
