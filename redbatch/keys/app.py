"""The commands below `redbatch keys`: what they take and what they say."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Make, list and revoke the keys with which clients ask.

    A gateway asks for a key when it listens elsewhere than on the loopback, or
    with --auth on. Clients send it as `Authorization: Bearer KEY`, as OpenAI's
    do by themselves, or as `x-api-key: KEY`. Keys are in Redis, and count for
    all gateways and queues there.

    redbatch keys create --name search --tenant web --expires 90d

    redbatch keys list

    redbatch keys revoke 1f0c9d2ab37e4c55
    """,
)

RedisUrl = Annotated[
    str | None,
    typer.Option(envvar="REDBATCH_REDIS_URL", help="Redis to ask; your running `redbatch up` when not set."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def create(  # noqa: PLR0913, PLR0917 - one for each option
    redis_url: RedisUrl = None,
    name: Annotated[str, typer.Option(help="For you, to tell it from others.")] = "",
    tenant: Annotated[str, typer.Option(help="Whom its requests count for.")] = "",
    scope: Annotated[
        list[str] | None, typer.Option(help="What it is for: embed, jobs, admin; several times for several.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="After so long it opens no more: 12h, 90d. Never, if not set.")
    ] = None,
    tokens_per_s: Annotated[
        float, typer.Option(min=0, help="Tokens a second that its tenant may have; beyond them: 429. 0: no limit.")
    ] = 0.0,
    burst_tokens: Annotated[
        int, typer.Option(min=0, help="So many of them at once; 0: as many as come in ten seconds.")
    ] = 0,
    daily_tokens: Annotated[
        int, typer.Option(min=0, help="Tokens on a day (UTC) that its tenant may have. 0: no limit.")
    ] = 0,
    weight: Annotated[
        float, typer.Option(min=0.01, max=100, help="Its tenant's part of the fleet, beside others that wait.")
    ] = 1.0,
    in_json: Json = False,
) -> None:
    """Make a key, and show it once: nobody can see it again."""
    from redbatch.keys.command import Wanted
    from redbatch.keys.command import create as run
    from shared.tenants import Quota

    wanted = Wanted(
        name, tenant, tuple(scope or ("embed",)), expires, Quota(tokens_per_s, burst_tokens, daily_tokens, weight)
    )
    raise typer.Exit(run(redis_url, wanted, in_json=in_json))


@app.command("list")
def list_(redis_url: RedisUrl = None, in_json: Json = False) -> None:
    """List keys, the oldest first; their secrets are not known."""
    from redbatch.keys.command import show_all

    raise typer.Exit(show_all(redis_url, in_json=in_json))


@app.command()
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="As `list` shows them.")],
    redis_url: RedisUrl = None,
) -> None:
    """Revoke keys: within two seconds they open nothing."""
    from redbatch.keys.command import revoke as run

    raise typer.Exit(run(redis_url, ids))
