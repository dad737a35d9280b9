"""The table of the settings."""

from __future__ import annotations

import io
import json

import pytest
from pydantic_settings import BaseSettings
from rich.console import Console

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.settings_view import as_json, as_markdown, print_table, rows

KINDS: dict[str, type[BaseSettings]] = {"gateway": GatewaySettings, "worker": WorkerSettings}


def test_every_setting_of_both_is_there_once() -> None:
    """What both share comes first and once; what differs in meaning comes for each."""
    found = rows(KINDS)
    names = {row.setting.name for row in found}
    assert names == set(GatewaySettings.model_fields) | set(WorkerSettings.model_fields)
    assert [row.process for row in found if row.setting.name == "redis_url"] == ["both"]
    assert sorted(row.process for row in found if row.setting.name == "queue") == ["gateway", "worker"]
    processes = [row.process for row in found]
    assert processes.index("gateway") == processes.count("both")


def test_values_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Default and value stand side by side; a password is masked."""
    monkeypatch.setenv("REDBATCH_MAX_BATCH_SIZE", "7")
    monkeypatch.setenv("REDBATCH_REDIS_URL", "redis://:secret@host/0")
    by_name = {entry["name"]: entry for entry in json.loads(as_json(rows({"worker": WorkerSettings})))}
    size = by_name["max_batch_size"]
    assert (size["flag"], size["variable"]) == ("--max-batch-size", "REDBATCH_MAX_BATCH_SIZE")
    assert (size["default"], size["value"]) == ("64", "7")
    assert by_name["redis_url"]["value"] == "redis://:***@host/0"
    assert by_name["max_batch_tokens"]["value"] is None


def test_the_table_shows_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables can be copied whole, also from a narrow terminal."""
    monkeypatch.setenv("REDBATCH_REDIS_URL", "redis://:secret@host/0")
    output = io.StringIO()
    print_table(rows(KINDS), Console(file=output, width=80))
    text = output.getvalue()
    assert "secret" not in text
    for row in rows(KINDS):
        assert row.setting.variable in text


def test_markdown_is_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The documentation's table has no values of this environment."""
    before = as_markdown(rows(KINDS, with_values=False))
    monkeypatch.setenv("REDBATCH_MAX_BATCH_SIZE", "7")
    assert as_markdown(rows(KINDS, with_values=False)) == before
    assert "| `--max-batch-size` | `REDBATCH_MAX_BATCH_SIZE` | worker | `64` | Most inputs in a batch. |" in before
    assert all(line.count("|") - line.count("\\|") == 6 for line in before.splitlines())
