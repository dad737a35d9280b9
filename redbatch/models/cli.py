"""The subcommands of `redbatch models`: their options and help texts."""

from __future__ import annotations

import typer

from redbatch.options import Json, OnlyQueue, RedisUrl, UpPort, Watch, command_group

app = command_group(
    """List the models that workers serve, and the revisions of each.

    A revision names a model and all that its vectors depend on. Vectors of two
    revisions cannot be compared. Each answer has the revision that gave it in
    its header x-model-revision, and a request can ask for one: as
    model@revision, or in the header X-Model-Revision.

    redbatch models list
    """
)


@app.command("list")
def list_models(
    redis_url: RedisUrl = None,
    name: OnlyQueue = None,
    up: UpPort = None,
    in_json: Json = False,
    watch: Watch = False,
) -> None:
    """List models, revisions, operations and workers."""
    from redbatch.models import view
    from redbatch.queue.command import show_queues
    from redbatch.queue_target import QueueTarget

    shown = view.as_text, view.as_json
    raise typer.Exit(show_queues(QueueTarget(redis_url, name, up), *shown, in_json=in_json, watch=watch))
