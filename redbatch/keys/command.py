"""What `redbatch keys` does. Each function returns the exit code: 0, 1 for what could not be done, 2 for misuse."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from redbatch.timestamps import moment
from shared.process.settings import EXIT_CONFIGURATION, complain
from redbatch.queue_target import EXIT_FAILED, Where, on_queue
from shared import api_keys
from shared.api_keys import SCOPES, AccessKey
from shared.keys import Keys
from shared.connection import Link
from shared.tenants import NO_QUOTA, TENANT, Quota

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,6})([smhd])")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A key to be made, as it was asked for."""

    name: str
    tenant: str
    scopes: Sequence[str]
    expires: str | None
    quota: Quota


def create(redis_url: str | None, wanted: Wanted, *, in_json: bool) -> int:
    """Makes a key and prints it."""
    unknown = sorted(set(wanted.scopes) - set(SCOPES))
    if unknown:
        return _misused(f"--scope {unknown[0]}: there are {', '.join(SCOPES)}")
    if wanted.tenant and not TENANT.fullmatch(wanted.tenant):
        return _misused(f"--tenant {wanted.tenant}: write up to 64 letters, digits, dots, dashes and underscores")
    try:
        TypeAdapter(Quota).validate_python(asdict(wanted.quota))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return _misused(f"--{str(fault['loc'][0]).replace('_', '-')}: {fault['msg']}")
    duration = None if wanted.expires is None else _DURATION.fullmatch(wanted.expires)
    if wanted.expires is not None and duration is None:
        return _misused(f"--expires {wanted.expires}: write 30m, 12h or 90d")
    key, whole = api_keys.new_key(
        (each for each in SCOPES if each in wanted.scopes),
        tenant=wanted.tenant,
        name=wanted.name,
        lifetime_s=None if duration is None else int(duration[1]) * _SECONDS[duration[2]],
        quota=wanted.quota,
    )

    async def work(link: Link, _keys: Keys) -> int:
        await api_keys.add(link, key)
        if in_json:
            typer.echo(json.dumps({"key": whole, **_as_dict(key)}))
        else:
            typer.echo(whole)
            typer.echo("This is the key: keep it now, it is not shown again.", err=True)
        return 0

    return on_queue(Where(redis_url), "keys", work)


def show_all(redis_url: str | None, *, in_json: bool) -> int:
    """Prints all keys, without what is secret about them."""

    async def work(link: Link, _keys: Keys) -> int:
        keys = await api_keys.read_all(link)
        if in_json:
            for key in keys:
                typer.echo(json.dumps(_as_dict(key)))
        else:
            Console(highlight=False).print(_as_table(keys) if keys else "There are no keys: `redbatch keys create`.")
        return 0

    return on_queue(Where(redis_url), "keys", work)


def revoke(redis_url: str | None, ids: Sequence[str]) -> int:
    """Forgets keys. A whole key is taken for its id."""

    async def work(link: Link, _keys: Keys) -> int:
        done = []
        for each in dict.fromkeys(given.partition(".")[0] for given in ids):
            done.append(await api_keys.remove(link, each))
            typer.echo(f"{each}: {'revoked' if done[-1] else 'there is no such key'}")
        return 0 if all(done) else EXIT_FAILED

    return on_queue(Where(redis_url), "keys", work)


def _as_dict(key: AccessKey) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "name": key.name,
        "tenant": key.tenant,
        "scopes": list(key.scopes),
        "quota": asdict(key.quota),
        "created": moment(key.created_ms),
        "expires": None if key.expires_ms is None else moment(key.expires_ms),
        "live": key.live(time.time() * 1000),
    }


def _as_table(keys: Sequence[AccessKey]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("id", "name", "tenant", "scopes", "quota", "created (UTC)", "expires (UTC)"):
        table.add_column(heading, no_wrap=heading == "id", overflow="fold")
    for key in keys:
        expires = "never" if key.expires_ms is None else moment(key.expires_ms)
        scopes, created = ", ".join(key.scopes), moment(key.created_ms)
        row = (key.key_id, key.name, key.tenant, scopes, _in_words(key.quota), created, expires)
        table.add_row(*map(Text, row), style=None if key.live(time.time() * 1000) else "dim strike")
    return table


def _in_words(quota: Quota) -> str:
    """Returns what of a quota is not as it is for everyone."""
    told = []
    if quota.tokens_per_s:
        told.append(
            f"{quota.tokens_per_s:g} tokens/s" + (f" ({quota.burst_tokens} at once)" * bool(quota.burst_tokens))
        )
    if quota.daily_tokens:
        told.append(f"{quota.daily_tokens} tokens/day")
    if quota.weight != NO_QUOTA.weight:
        told.append(f"weight {quota.weight:g}")
    return ", ".join(told)


def _misused(message: str) -> int:
    complain(message)
    return EXIT_CONFIGURATION
