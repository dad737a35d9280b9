"""The subcommands of `redbatch jobs`: their options and help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redbatch.options import Json, Limit, OnlyQueue, QueueName, RedisUrl, UpPort, Yes, command_group

app = command_group(
    """Inspect and cancel jobs: requests that a gateway accepted with 202 and answers later.

    These commands read Redis directly and see the jobs of all clients. Clients
    use a gateway: POST /jobs, GET /jobs/ID, GET /jobs/ID/result (docs/jobs.md).

    redbatch jobs list

    redbatch jobs show minilm.5f1d...

    redbatch jobs results minilm.5f1d... -o vectors.npy
    """
)

JobId = Annotated[str, typer.Argument(metavar="ID", help="Id from `redbatch jobs list`.")]


@app.command("list")
def list_(
    redis_url: RedisUrl = None,
    queue: OnlyQueue = None,
    up: UpPort = None,
    limit: Limit = 20,
    show_all: Annotated[bool, typer.Option("--all", help="List deleted jobs, too.")] = False,
    in_json: Json = False,
) -> None:
    """List the jobs of all queues, or of one, and their progress; newest first."""
    from redbatch.jobs.command import list_jobs
    from redbatch.queue_target import QueueTarget

    raise typer.Exit(list_jobs(QueueTarget(redis_url, queue, up), limit, show_all=show_all, in_json=in_json))


@app.command()
def show(
    job_id: JobId, redis_url: RedisUrl = None, queue: QueueName = None, up: UpPort = None, in_json: Json = False
) -> None:
    """Show one job in full, with the inputs that failed."""
    from redbatch.jobs.command import show_job
    from redbatch.queue_target import QueueTarget

    raise typer.Exit(show_job(QueueTarget(redis_url, queue, up), job_id, in_json=in_json))


@app.command()
def cancel(
    job_id: JobId,
    redis_url: RedisUrl = None,
    queue: QueueName = None,
    up: UpPort = None,
    yes: Yes = False,
    in_json: Json = False,
) -> None:
    """Cancel a job and delete its inputs. The results of one that has ended are deleted after confirmation."""
    from redbatch.jobs.command import cancel_job
    from redbatch.queue_target import QueueTarget

    def confirm(question: str) -> bool:
        return yes or typer.confirm(question, err=True)

    raise typer.Exit(cancel_job(QueueTarget(redis_url, queue, up), job_id, confirm, in_json=in_json))


@app.command()
def results(
    job_id: JobId,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A .npy file, NaN for failed inputs; JSON lines for a function.")
    ],
    redis_url: RedisUrl = None,
    queue: QueueName = None,
    up: UpPort = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write the results of an ended job to a file; exit code 1 if an input has none."""
    from redbatch.jobs.command import write_results
    from redbatch.queue_target import QueueTarget

    raise typer.Exit(write_results(QueueTarget(redis_url, queue, up), job_id, out, force=force))
