"""Implementation of `redbatch keys`. Each function returns the exit code: 0, 1 after a failure, 2 after misuse."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from rich.console import Group

from redbatch.exit_codes import EXIT_FAILED, report_failure, report_misuse
from redbatch.queue_target import (
    QueueTarget,
    ShardsTask,
    ask_shards,
    report_left_out,
    run_on_shards,
)
from redbatch.tables import plain_table
from redbatch.terminal import make_console, print_line
from redbatch.up.run_file import find_running_ups
from shared import api_keys
from shared.api_keys import SCOPES, ApiKey
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.option_words import what_it_takes
from shared.process.log_text import printable_line
from shared.process.settings import flag_of
from shared.redis_url import one_per_keyspace
from shared.shard_connections import ShardConnection
from shared.tenants import NO_QUOTA, TENANT, Quota
from shared.timestamps import format_timestamp

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,6})([smhd])")


@dataclass(frozen=True, slots=True)
class ApiKeySpec:
    """The API key to create, as on the command line; `expires` is a lifetime such as "90d", or None."""

    name: str
    tenant: str
    scopes: Sequence[str]
    expires: str | None
    quota: Quota


def create_api_key(target: QueueTarget, spec: ApiKeySpec, *, in_json: bool) -> int:
    """Creates an API key and prints it."""
    if problem := _find_problem(spec):
        return report_misuse(problem)
    api_key, key_with_secret = api_keys.new_key(
        (scope for scope in SCOPES if scope in spec.scopes),
        tenant=spec.tenant,
        name=spec.name,
        lifetime_s=None if spec.expires is None else _parse_lifetime(spec.expires),
        quota=spec.quota,
    )

    async def task(shards: Sequence[ShardConnection], _keys: Keys) -> int:
        _, problems = await ask_shards(shards, lambda shard: shard.connection.ping())
        for number, problem in problems.items():
            report_failure(f"shard {number}, {shards[number].place}, does not answer, and needs the key too: {problem}")
        if problems:  # before any has it
            return EXIT_FAILED
        for shard in shards:
            await api_keys.add(shard.connection, api_key)
        if in_json:
            print_line(json.dumps({"key": key_with_secret, **_as_dict(api_key)}))
        else:
            print_line(key_with_secret)
            print_line("This is the API key. Store it now: it is not shown again.", to_stderr=True)
        if hint := _where_it_is_required(target):
            print_line(hint, to_stderr=True)
        return 0

    return _run(target, task)


def list_api_keys(target: QueueTarget, *, in_json: bool) -> int:
    """Prints all API keys, without their secrets; on stderr, which shards do not answer."""

    async def task(shards: Sequence[ShardConnection], _keys: Keys) -> int:
        records, problems = await _read_all(shards)
        if in_json:
            for api_key in records:
                print_line(json.dumps(_as_dict(api_key)))
        elif records:
            make_console().print(_as_table(records))
        elif not problems:
            make_console().print("There are no API keys: create one with `redbatch keys create`.")
        report_left_out("API keys", shards, problems)
        return 0

    return _run(target, task)


def revoke_api_keys(target: QueueTarget, ids: Sequence[str]) -> int:
    """Revokes API keys. `ids` may also hold whole keys: the part before the dot is the id."""

    async def task(shards: Sequence[ShardConnection], _keys: Keys) -> int:
        names_by_id = {text.partition(".")[0]: text for text in ids}
        exit_code = 0
        for key_id, name in names_by_id.items():
            problems, found = [], False
            for shard in shards:
                try:
                    found |= await api_keys.remove(shard.connection, key_id)
                except RedisUnreachableError as error:
                    if len(shards) == 1:
                        raise
                    problems.append(f"{shard.place}: {printable_line(error.log_message)}")
            if found:
                print_line(f"{key_id}: revoked" + (", but not everywhere" if problems else ""))
            elif not problems:
                records, _ = await _read_all(shards)
                report_failure(_explain_unknown(key_id, name, records))
            for problem in problems:
                report_failure(f"{key_id} may still be valid: revoke it again when all Redis answer: {problem}")
            if problems or not found:
                exit_code = EXIT_FAILED
        return exit_code

    return _run(target, task)


async def _read_all(shards: Sequence[ShardConnection]) -> tuple[list[ApiKey], dict[int, str]]:
    """Returns the keys of the shards that answer, the oldest first, and why others do not, by their numbers.

    Raises RedisUnreachableError: none answers.
    """
    answers, problems = await ask_shards(shards, lambda shard: api_keys.read_all(shard.connection))
    by_id = {key.key_id: key for each in answers.values() for key in each}
    return sorted(by_id.values(), key=lambda key: (key.created_ms, key.key_id)), problems


def _run(target: QueueTarget, task: ShardsTask) -> int:
    """Runs a task on each Redis that has API keys; the shards of one Redis Cluster have them together."""
    return run_on_shards(target, "keys", task, choose=lambda urls: one_per_keyspace(urls, urls))


def _explain_unknown(key_id: str, name: str, records: Sequence[ApiKey]) -> str:
    """Returns why an id is none: it is the name of keys, whose ids follow, or it is unknown."""
    named = sorted(each.key_id for each in records if each.name == name)
    if named:
        return f"{name}: this is a name: revoke the key by its id, {' or '.join(named)}"
    return f"{key_id}: there is no such API key: give an id from `redbatch keys list`"


def _where_it_is_required(target: QueueTarget) -> str:
    """Returns a sentence about the gateways that ignore a new API key; empty if the running `up` requires API keys."""
    if target.names_redis:
        return "Gateways require API keys with --auth on, or where they listen beyond loopback; others ignore them."
    for each in find_running_ups():
        if target.up in {None, each.port} and not each.requires_keys:
            return (
                f"It has no effect yet: {each.url} admits every client without a key. Start it with --auth on, and "
                "create the key then: a start loses those of before, unless both have --data-dir."
            )
    return ""


def _find_problem(spec: ApiKeySpec) -> str:
    """Returns what is wrong with a specification, naming the flag; empty if nothing is."""
    unknown = sorted(set(spec.scopes) - set(SCOPES))
    if unknown:
        return f"--scope {unknown[0]}: the scopes are {', '.join(SCOPES)}"
    if spec.tenant and not TENANT.fullmatch(spec.tenant):
        return f"--tenant {spec.tenant}: use at most 64 letters, digits, dots, dashes and underscores"
    try:
        TypeAdapter(Quota).validate_python(asdict(spec.quota))
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        return f"{flag_of(name)}: it takes {what_it_takes(get_type_hints(Quota, include_extras=True)[name])}"
    if spec.expires is not None and _parse_lifetime(spec.expires) is None:
        return f"--expires {spec.expires}: use a number and s, m, h or d, such as 30m, 12h or 90d"
    return ""


def _parse_lifetime(text: str) -> int | None:
    """Returns a duration such as "90d" in seconds; None if the text is not one."""
    match = _DURATION.fullmatch(text)
    return None if match is None else int(match[1]) * _SECONDS[match[2]]


def _as_dict(api_key: ApiKey) -> dict[str, Any]:
    return {
        "id": api_key.key_id,
        "name": api_key.name,
        "tenant": api_key.tenant,
        "scopes": list(api_key.scopes),
        "quota": asdict(api_key.quota),
        "created": format_timestamp(api_key.created_ms),
        "expires": None if api_key.expires_ms is None else format_timestamp(api_key.expires_ms),
        "live": api_key.is_live(time.time() * 1000),
    }


def _as_table(records: Sequence[ApiKey]) -> Group:
    """Returns a table of API keys that fits into 80 columns, and one of their quotas if there are any."""
    now_ms = time.time() * 1000
    table, quotas = plain_table("id", "name", "tenant", "scopes", "created", "expires"), plain_table("id")
    quotas.add_columns("tokens/s", "at once", "tokens/day", "weight", justify="right", no_wrap=True)
    limited = [api_key for api_key in records if api_key.quota != NO_QUOTA]
    for api_key in records:
        expires_ms = api_key.expires_ms
        expires = "never" if expires_ms is None else _format_day(expires_ms, now_ms)
        scopes, created = ", ".join(api_key.scopes), format_timestamp(api_key.created_ms).partition(" ")[0]
        row = (api_key.key_id, api_key.name, api_key.tenant, scopes, created, expires)
        table.add_row(*row, style="" if api_key.is_live(now_ms) else "dim strike")
    for api_key in limited:
        quota = api_key.quota
        tokens = (quota.tokens_per_s, quota.burst_tokens, quota.daily_tokens)
        limits = [f"{limit:,.12g}" if limit else "-" for limit in tokens]
        quotas.add_row(api_key.key_id, *limits, f"{quota.weight:g}")
    return Group(table, *(("", quotas) if limited else ()))


def _format_day(ms: float, now_ms: float) -> str:
    """Returns the day of a time in UTC; with the time of day if the day would not tell whether it is over."""
    timestamp = format_timestamp(ms)
    return timestamp.partition(" ")[0] if abs(ms - now_ms) > _SECONDS["d"] * 1000 else timestamp
