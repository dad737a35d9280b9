"""The queue and the running `up` that a command works on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from redbatch.commands import app
from redbatch.gateway_url import find_gateway_url
from redbatch.queue_target import QueueTarget, find_queue
from redbatch.up.run_file import Announcement, NoUpError, RunFile, find_up

REDIS = "redis://:secret@127.0.0.1:1/{}"
Announce = Callable[[int, str], None]


@pytest.fixture
def announce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Announce]:
    """Announces an `up` by the port of its API and its queue; its Redis has the port as database."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    announcements: list[Announcement] = []

    def announce(port: int, queue: str) -> None:
        run_file = RunFile(os.getpid() + port, f"http://127.0.0.1:{port}", REDIS.format(port), queue)
        announcements.append(Announcement(run_file))

    yield announce
    for each in announcements:
        each.withdraw()


def test_the_only_one_is_found(announce: Announce) -> None:
    """One running `up` needs no option; its queue is the default, and another queue can be named."""
    announce(8080, "minilm")
    assert find_queue(QueueTarget(None)) == ((REDIS.format(8080),), "minilm")
    assert find_queue(QueueTarget(None, "other")) == ((REDIS.format(8080),), "other")


def test_one_of_several_is_chosen_by_its_port(announce: Announce) -> None:
    """With several, --up names one; without it, the error lists the choices, and no password."""
    announce(8080, "minilm")
    announce(8081, "squares")
    assert find_queue(QueueTarget(None, up=8081)) == ((REDIS.format(8081),), "squares")
    with pytest.raises(NoUpError) as caught:
        find_up(None)
    for expected in ("--up 8080 (minilm, http://127.0.0.1:8080)", "--up 8081 (squares, ", "--redis-url"):
        assert expected in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_unknown_port_lists_the_running(announce: Announce) -> None:
    """The error for a port that no running `up` has names the port and the choices; the only one is not taken."""
    announce(8080, "minilm")
    with pytest.raises(NoUpError, match=r"has port 9999: choose --up 8080 \(minilm"):
        find_up(9999)


def test_without_any_the_error_says_what_to_do(announce: Announce) -> None:
    """Without a running `up`, the error says to start one, or what to give instead."""
    with pytest.raises(NoUpError, match="start one, or give the URL of a Redis with --redis-url"):
        find_up(None)


def test_a_url_needs_no_up(announce: Announce) -> None:
    """With a URL, running `up` do not matter, and the default queue is that of the default model."""
    announce(8080, "squares")
    assert find_queue(QueueTarget("redis://elsewhere/0")) == (("redis://elsewhere/0",), "minilm")


COMMANDS = (
    *("queue", "leases", "keys list", "keys create", "keys revoke x", "jobs list", "jobs show x", "jobs cancel x"),
    *("jobs results x -o y", "dead list", "dead show x", "dead requeue x", "dead purge x --yes", "bench"),
    "embed texts.txt -o vectors.npy",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_up(command: str, announce: Announce) -> None:
    """Every command that reads a queue or calls a gateway lists the choices, and takes one of them with --up."""
    announce(8080, "minilm")
    announce(8081, "squares")
    result = CliRunner().invoke(app, command.split(" "))
    assert result.exit_code == 1
    assert "--up 8081" in result.stderr
    result = CliRunner().invoke(app, [*command.split(" "), "--up", "9999"])
    assert result.exit_code == 1
    assert "no running `redbatch up` of yours has port 9999" in result.stderr


def unboxed(error: str) -> str:
    """Returns the words of an error that a frame divides into lines."""
    return " ".join(error.replace("│", " ").split())


def test_up_overrides_the_variable_but_not_the_option(announce: Announce, monkeypatch: pytest.MonkeyPatch) -> None:
    """--up wins over REDBATCH_REDIS_URL; together with --redis-url, or a URL, it is misuse."""
    announce(8080, "minilm")
    monkeypatch.setenv("REDBATCH_REDIS_URL", "redis://elsewhere/0")
    assert "has port 9999" in CliRunner().invoke(app, ["queue", "--up", "9999"]).stderr
    for words in (["--up", "8080", "--redis-url", "redis://x/0"], ["--redis-url", "redis://x/0", "--up", "8080"]):
        result = CliRunner().invoke(app, ["queue", *words])
        assert result.exit_code == 2
        assert "leave out" in unboxed(result.stderr)
    for command, url in (("bench", "the URL"), ("embed texts.txt -o vectors.npy --url", "--url")):
        result = CliRunner().invoke(app, [*command.split(" "), "http://127.0.0.1:1", "--up", "8080"])
        assert result.exit_code == 2
        assert f"leave out {url}" in unboxed(result.stderr)


def test_a_gateway_is_named_or_that_of_the_only_up_or_the_usual_one(announce: Announce) -> None:
    """Without any running `up`, requests go to the usual address of a gateway; a URL that is given always wins."""
    assert find_gateway_url(None, None) == "http://127.0.0.1:8080"
    announce(8172, "minilm")
    assert find_gateway_url(None, None) == "http://127.0.0.1:8172"
    assert find_gateway_url("http://gateway:80", None) == "http://gateway:80"
    announce(8173, "squares")
    assert find_gateway_url(None, 8173) == "http://127.0.0.1:8173"
    with pytest.raises(NoUpError, match=r"choose --up 8172 .*, or give the URL of a gateway with --url"):
        find_gateway_url(None, None)


def test_the_shards_of_an_up_are_all_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They override the variable of one Redis only with --up; both variables are misuse, without their passwords."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    urls = ("redis://:secret@a/0", "redis://:secret@b/0")
    announcement = Announcement(
        RunFile(os.getpid(), "http://127.0.0.1:8080", "", "minilm", redis_shards=",".join(urls))
    )
    assert find_queue(QueueTarget(None)) == (urls, "minilm")
    announcement.withdraw()
    monkeypatch.setenv("REDBATCH_REDIS_SHARDS", ",".join(reversed(urls)))
    assert find_queue(QueueTarget(None)) == (urls[::-1], "minilm")
    assert find_queue(QueueTarget("redis://c/0")) == (("redis://c/0",), "minilm")
    monkeypatch.setenv("REDBATCH_REDIS_URL", urls[0])
    result = CliRunner().invoke(app, ["queue"])
    assert result.exit_code == 2
    assert "--redis-url and --redis-shards exclude each other" in result.stderr
    monkeypatch.delenv("REDBATCH_REDIS_URL")
    monkeypatch.setenv("REDBATCH_REDIS_SHARDS", f"{urls[0]},{urls[0]}")
    result = CliRunner().invoke(app, ["queue"])
    assert "--redis-shards (REDBATCH_REDIS_SHARDS): a URL is there twice" in result.stderr
    assert "secret" not in result.stderr
