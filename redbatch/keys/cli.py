"""The subcommands of `redbatch keys`: their options and help texts."""

from __future__ import annotations

from typing import Annotated

import typer

from redbatch.options import Json, RedisUrl, UpPort, command_group

app = command_group(
    """Create, list and revoke the API keys of clients.

    A gateway requires an API key if it listens on an address other than
    loopback, or with --auth on; any other gateway ignores API keys, with their
    tenants and quotas. Clients send a key as `Authorization: Bearer KEY`, as
    OpenAI clients do, or as `x-api-key: KEY`. API keys are stored in Redis and
    are valid for all gateways and queues in it.

    redbatch keys create --name search --tenant web --expires 90d

    redbatch keys list

    redbatch keys revoke 1f0c9d2ab37e4c55
    """
)


@app.command()
def create(  # noqa: PLR0913, PLR0917 - one for each option
    redis_url: RedisUrl = None,
    up: UpPort = None,
    name: Annotated[str, typer.Option(help="Name for you, to distinguish the key from others.")] = "",
    tenant: Annotated[str, typer.Option(help="Tenant to which its requests are charged.")] = "",
    scope: Annotated[
        list[str] | None, typer.Option(help="Scope: embed, jobs or admin; repeatable. Default: embed.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Lifetime of the key: 30m, 12h, 90d. Default: unlimited.")
    ] = None,
    tokens_per_s: Annotated[
        float, typer.Option(min=0, help="Maximum tokens per second of its tenant; beyond: 429. 0: no limit.")
    ] = 0.0,
    burst_tokens: Annotated[
        int, typer.Option(min=0, help="Maximum burst, in tokens. 0: the tokens of ten seconds.")
    ] = 0,
    daily_tokens: Annotated[
        int, typer.Option(min=0, help="Maximum tokens per day (UTC) of its tenant. 0: no limit.")
    ] = 0,
    weight: Annotated[
        float,
        typer.Option(min=0.01, max=100, help="Share of the fleet for its tenant, relative to other waiting tenants."),
    ] = 1.0,
    in_json: Json = False,
) -> None:
    """Create an API key and print it. It is never shown again."""
    from redbatch.keys.command import ApiKeySpec, create_api_key
    from redbatch.queue_target import QueueTarget
    from shared.tenants import Quota

    spec = ApiKeySpec(
        name, tenant, tuple(scope or ("embed",)), expires, Quota(tokens_per_s, burst_tokens, daily_tokens, weight)
    )
    raise typer.Exit(create_api_key(QueueTarget(redis_url, up=up), spec, in_json=in_json))


@app.command("list")
def list_(redis_url: RedisUrl = None, up: UpPort = None, in_json: Json = False) -> None:
    """List API keys, oldest first; days are in UTC. Redis does not contain their secrets, only digests."""
    from redbatch.keys.command import list_api_keys
    from redbatch.queue_target import QueueTarget

    raise typer.Exit(list_api_keys(QueueTarget(redis_url, up=up), in_json=in_json))


@app.command()
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids from `redbatch keys list`.")],
    redis_url: RedisUrl = None,
    up: UpPort = None,
) -> None:
    """Revoke API keys. Gateways reject them within two seconds."""
    from redbatch.keys.command import revoke_api_keys
    from redbatch.queue_target import QueueTarget

    raise typer.Exit(revoke_api_keys(QueueTarget(redis_url, up=up), ids))
