"""`redbatch keys`: an API key is shown once, and can be listed and revoked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from redbatch.commands import app
from redbatch.up.run_file import Announcement, RunFile
from shared.api_keys import digest_of
from shared.keys import API_KEYS
from tests.users import as_user

pytestmark = pytest.mark.redis

Run = Callable[..., Any]
UNKNOWN = "there is no such API key: give an id from `redbatch keys list`"


@pytest.fixture
def run(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `redbatch keys` with arguments, in a Redis without API keys."""
    monkeypatch.setenv("REDBATCH_REDIS_URL", as_user(redis_url, "admin"))
    monkeypatch.setenv("COLUMNS", "160")
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        client.delete(API_KEYS)
    return lambda *arguments: CliRunner().invoke(app, ["keys", *arguments])


def list_api_keys(run: Run) -> list[dict[str, Any]]:
    """Returns the API keys that `list --json` prints."""
    return [json.loads(line) for line in run("list", "--json").stdout.splitlines()]


def test_a_key_is_shown_once(run: Run, redis_url: str) -> None:
    """A new key is the only output on stdout, for scripts; Redis and lists do not contain its secret."""
    result = run("create", "--name", "search", "--tenant", "web", "--expires", "90d")
    assert result.exit_code == 0
    key_id, _, secret = result.stdout.strip().partition(".")
    assert "not shown again" in result.stderr
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        raw = client.hget(API_KEYS, key_id)
    assert isinstance(raw, bytes)
    assert json.loads(raw)["digest"] == digest_of(secret)
    [record] = list_api_keys(run)
    assert {
        "id": key_id,
        "name": "search",
        "tenant": "web",
        "scopes": ["embed"],
        "live": True,
    }.items() <= record.items()
    for output in (raw.decode(), run("list").output, run("list", "--json").output):
        assert key_id in output
        assert secret not in output


def test_a_key_for_open_gateways_says_so(
    run: Run, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where gateways admit all clients, a key opens and limits nothing: that is said, or when it would be so."""
    assert "with --auth on" in run("create", "--json").stderr
    monkeypatch.delenv("REDBATCH_REDIS_URL")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for requires_keys in (False, True):
        run_file = RunFile(os.getpid(), "http://127.0.0.1:8123", as_user(redis_url, "admin"), "minilm", requires_keys)
        announcement = Announcement(run_file)
        errors = run("create").stderr
        announcement.withdraw()
        assert ("http://127.0.0.1:8123 admits every client without a key" in errors) is not requires_keys
        assert ("--auth on" in errors) is not requires_keys


def test_keys_are_listed_and_revoked(run: Run) -> None:
    """`revoke` accepts a whole key or its id, and reports an unknown id with exit code 1."""
    created = [json.loads(run("create", "--json", "--scope", "jobs", "--scope", "embed").stdout) for _ in range(3)]
    assert {each["id"] for each in list_api_keys(run)} == {each["id"] for each in created}
    assert created[0]["scopes"] == ["embed", "jobs"]
    result = run("revoke", created[0]["key"], created[1]["id"], "nothing")
    assert (result.exit_code, result.stdout.count("revoked")) == (1, 2)
    assert result.stderr == f"redbatch: nothing: {UNKNOWN}\n"
    assert [each["id"] for each in list_api_keys(run)] == [created[2]["id"]]


def test_a_name_is_answered_with_its_ids(run: Run) -> None:
    """Names need not be unique, so `revoke` takes ids: it says which ones the name has, and revokes nothing."""
    ids = [json.loads(run("create", "--json", "--name", "web.search").stdout)["id"] for _ in range(2)]
    result = run("revoke", "web.search")
    assert result.exit_code == 1
    assert (
        f"redbatch: web.search: this is a name: revoke the key by its id, {' or '.join(sorted(ids))}" in result.stderr
    )
    assert len(list_api_keys(run)) == 2
    assert run("revoke", "nothing").stderr == f"redbatch: nothing: {UNKNOWN}\n"


def test_a_key_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns a key is one line, with the days of its dates; quotas are a table below, if there are any."""
    monkeypatch.setenv("COLUMNS", "80")
    options = ("--name", "redbatch up", "--tenant", "batch-import", "--scope", "embed", "--scope", "jobs")
    key_id = json.loads(run("create", "--json", "--expires", "90d", *options).stdout)["id"]
    row = f"{key_id}  redbatch up  batch-import  embed, jobs  \\d{{4}}-\\d\\d-\\d\\d  \\d{{4}}-\\d\\d-\\d\\d"
    assert re.search(row, run("list").stdout)
    assert "quota" not in run("list").stdout
    quota = ("--tokens-per-s", "20000", "--burst-tokens", "100000", "--daily-tokens", "500000000", "--weight", "2")
    limited = json.loads(run("create", "--json", *quota).stdout)["id"]
    assert re.search(row, run("list").stdout)
    assert re.search(f"{limited} +20,000 +100,000 +500,000,000 +2\n", run("list").stdout), "no quota wraps"
    assert not re.search(r"\d\d:\d\d:\d\d", run("list").stdout)
    run("create", "--expires", "30m")
    assert re.search(r"\d\d:\d\d:\d\d", run("list").stdout), "a day alone would not tell"


def test_an_empty_list_is_no_error(run: Run) -> None:
    """Without API keys, `list` prints how to create one and exits with code 0."""
    result = run("list")
    assert (result.exit_code, "redbatch keys create" in result.output) == (0, True)


@pytest.mark.parametrize(
    "invalid",
    [
        ("--scope", "all"),
        ("--scope", "root"),
        ("--expires", "soon"),
        ("--expires", "-1d"),
        ("--tenant", "a b"),
        ("--tokens-per-s", "nan"),
        ("--tokens-per-s", "inf"),
        ("--burst-tokens", "99999999999999999999"),
    ],
)
def test_invalid_options_create_no_key(run: Run, invalid: tuple[str, str]) -> None:
    """An invalid option ends with exit code 2 and a line that names it, and no key is created."""
    result = run("create", *invalid)
    assert (result.exit_code, result.stdout) == (2, "")
    assert invalid[0] in result.stderr
    assert list_api_keys(run) == []


def test_a_quota_is_stored_and_shown(run: Run) -> None:
    """A quota is listed as text and as JSON."""
    options = ("--tokens-per-s", "20.5", "--burst-tokens", "100", "--daily-tokens", "5000", "--weight", "2")
    assert run("create", "--tenant", "web", *options).exit_code == 0
    [key] = list_api_keys(run)
    assert key["quota"] == {"tokens_per_s": 20.5, "burst_tokens": 100, "daily_tokens": 5000, "weight": 2.0}
    assert re.search(r"tokens/s +at once +tokens/day +weight\n\w+ +20\.5 +100 +5,000 +2\n", run("list").output)
    assert run("create", "--tokens-per-s", "2000000").exit_code == 0
    assert re.search(r" 2,000,000 +- +- +1\n", run("list").output)


def test_a_key_of_an_earlier_version_loses_only_its_unknown_scope(run: Run, redis_url: str) -> None:
    """Another version may have more scopes: a key with one of these stays valid for its other scopes."""
    key = json.loads(run("create", "--json").stdout)
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        raw = client.hget(API_KEYS, key["id"])
        assert isinstance(raw, bytes)
        client.hset(API_KEYS, key["id"], json.dumps(json.loads(raw) | {"scopes": ["embed", "root", 1]}))
    assert [each["scopes"] for each in list_api_keys(run)] == [["embed"]]
