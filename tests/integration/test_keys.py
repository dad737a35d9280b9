"""`redbatch keys`: a key is shown once, works, and can be revoked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from redbatch.commands import app
from shared.api_keys import digest_of
from shared.keys import ACCESS_KEYS
from tests.users import as_user

pytestmark = pytest.mark.redis

Run = Callable[..., Any]


@pytest.fixture
def run(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `redbatch keys` with some arguments, where there are none yet."""
    monkeypatch.setenv("REDBATCH_REDIS_URL", as_user(redis_url, "admin"))
    monkeypatch.setenv("COLUMNS", "160")
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        client.delete(ACCESS_KEYS)
    return lambda *arguments: CliRunner().invoke(app, ["keys", *arguments])


def listed(run: Run) -> list[dict[str, Any]]:
    """The keys as JSON."""
    return [json.loads(line) for line in run("list", "--json").stdout.splitlines()]


def test_a_key_is_shown_once(run: Run, redis_url: str) -> None:
    """Alone on stdout, for scripts; in Redis and in lists there is nothing that opens."""
    made = run("create", "--name", "search", "--tenant", "web", "--expires", "90d")
    assert made.exit_code == 0
    key_id, _, secret = made.stdout.strip().partition(".")
    assert "not shown again" in made.stderr
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        raw = client.hget(ACCESS_KEYS, key_id)
    assert isinstance(raw, bytes)
    assert json.loads(raw)["digest"] == digest_of(secret)
    [found] = listed(run)
    assert {"id": key_id, "name": "search", "tenant": "web", "scopes": ["embed"], "live": True}.items() <= found.items()
    for shown in (raw.decode(), run("list").output, run("list", "--json").output):
        assert key_id in shown
        assert secret not in shown


def test_keys_are_listed_in_the_order_of_their_making_and_revoked(run: Run) -> None:
    """A whole key is taken for its id; one that is not there is said to be."""
    made = [json.loads(run("create", "--json", "--scope", "jobs", "--scope", "embed").stdout) for _ in range(3)]
    assert {each["id"] for each in listed(run)} == {each["id"] for each in made}
    assert made[0]["scopes"] == ["embed", "jobs"]
    result = run("revoke", made[0]["key"], made[1]["id"], "nothing")
    assert (result.exit_code, result.output.count("revoked")) == (1, 2)
    assert "nothing: there is no such key" in result.output
    assert [each["id"] for each in listed(run)] == [made[2]["id"]]


def test_an_empty_list_says_what_to_do(run: Run) -> None:
    """It is no error."""
    result = run("list")
    assert (result.exit_code, "redbatch keys create" in result.output) == (0, True)


@pytest.mark.parametrize(
    "wrong",
    [
        ("--scope", "all"),
        ("--expires", "soon"),
        ("--expires", "-1d"),
        ("--tenant", "a b"),
        ("--tokens-per-s", "nan"),
        ("--tokens-per-s", "inf"),
        ("--burst-tokens", "99999999999999999999"),
    ],
)
def test_what_is_misused_makes_no_key(run: Run, wrong: tuple[str, str]) -> None:
    """And says what there is."""
    result = run("create", *wrong)
    assert (result.exit_code, result.stdout) == (2, "")
    assert wrong[0] in result.stderr
    assert listed(run) == []


def test_a_quota_is_kept_and_shown(run: Run) -> None:
    """In words, and as JSON."""
    options = ("--tokens-per-s", "20.5", "--burst-tokens", "100", "--daily-tokens", "5000", "--weight", "2")
    assert run("create", "--tenant", "web", *options).exit_code == 0
    [key] = listed(run)
    assert key["quota"] == {"tokens_per_s": 20.5, "burst_tokens": 100, "daily_tokens": 5000, "weight": 2.0}
    assert "20.5 tokens/s" in run("list").output
