"""The commands below `redbatch jobs`: what they take and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redbatch.dead.app import Json, QueueName, RedisUrl

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Look after jobs: requests that were taken with 202, and are answered later.

    These ask Redis itself, and see the jobs of all clients. Clients ask a
    gateway: POST /jobs, GET /jobs/ID, GET /jobs/ID/result (docs/jobs.md).

    redbatch jobs list

    redbatch jobs show minilm.5f1d...

    redbatch jobs results minilm.5f1d... -o vectors.npy
    """,
)

JobId = Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")]


@app.command("list")
def list_(
    redis_url: RedisUrl = None,
    queue: QueueName = None,
    most: Annotated[int, typer.Option(min=1, help="Show the last so many.")] = 20,
    in_json: Json = False,
) -> None:
    """List jobs, newest first, with how far they are."""
    from redbatch.jobs.command import show_all
    from redbatch.queue_target import Where

    raise typer.Exit(show_all(Where(redis_url, queue), most, in_json=in_json))


@app.command()
def show(job_id: JobId, redis_url: RedisUrl = None, queue: QueueName = None, in_json: Json = False) -> None:
    """Show one whole, with the inputs that failed."""
    from redbatch.jobs.command import show_one
    from redbatch.queue_target import Where

    raise typer.Exit(show_one(Where(redis_url, queue), job_id, in_json=in_json))


@app.command()
def cancel(job_id: JobId, redis_url: RedisUrl = None, queue: QueueName = None) -> None:
    """End a job whose result nobody wants. What it has is deleted."""
    from redbatch.jobs.command import cancel as run_cancel
    from redbatch.queue_target import Where

    raise typer.Exit(run_cancel(Where(redis_url, queue), job_id))


@app.command()
def results(
    job_id: JobId,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .npy file; those that failed are NaN in it.")],
    redis_url: RedisUrl = None,
    queue: QueueName = None,
) -> None:
    """Write the vectors of a job that has ended to a file."""
    from redbatch.jobs.command import write_results
    from redbatch.queue_target import Where

    raise typer.Exit(write_results(Where(redis_url, queue), job_id, out))
