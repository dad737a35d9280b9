"""The table of settings."""

from __future__ import annotations

import io
import json

import pytest
from pydantic_settings import BaseSettings
from rich.console import Console

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.settings_view import as_json, as_markdown, print_table, setting_rows

SETTINGS_CLASSES: dict[str, type[BaseSettings]] = {"gateway": GatewaySettings, "worker": WorkerSettings}


def test_every_setting_appears_once() -> None:
    """A setting that both processes share appears once, first; one that differs in meaning appears for each."""
    rows = setting_rows(SETTINGS_CLASSES)
    names = {row.setting.name for row in rows}
    assert names == set(GatewaySettings.model_fields) | set(WorkerSettings.model_fields)
    assert [row.process for row in rows if row.setting.name == "redis_url"] == ["both"]
    assert sorted(row.process for row in rows if row.setting.name == "queue") == ["gateway", "worker"]
    processes = [row.process for row in rows]
    assert processes.index("gateway") == processes.count("both")


def test_values_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row has the default and the value of the environment, with its password masked."""
    monkeypatch.setenv("REDBATCH_MAX_BATCH_SIZE", "7")
    monkeypatch.setenv("REDBATCH_REDIS_URL", "redis://:secret@host/0")
    by_name = {entry["name"]: entry for entry in json.loads(as_json(setting_rows({"worker": WorkerSettings})))}
    size = by_name["max_batch_size"]
    assert (size["flag"], size["variable"]) == ("--max-batch-size", "REDBATCH_MAX_BATCH_SIZE")
    assert (size["default"], size["value"]) == ("64", "7")
    assert by_name["redis_url"]["value"] == "redis://:***@host/0"
    assert by_name["max_batch_tokens"]["value"] is None


def test_the_table_shows_every_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variable names are complete, even on a narrow terminal, and passwords are masked."""
    monkeypatch.setenv("REDBATCH_REDIS_URL", "redis://:secret@host/0")
    output = io.StringIO()
    print_table(setting_rows(SETTINGS_CLASSES), Console(file=output, width=80))
    text = output.getvalue()
    assert "secret" not in text
    for row in setting_rows(SETTINGS_CLASSES):
        assert row.setting.variable in text


def test_markdown_does_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Markdown table has no values of this environment."""
    before = as_markdown(setting_rows(SETTINGS_CLASSES, with_values=False))
    monkeypatch.setenv("REDBATCH_MAX_BATCH_SIZE", "7")
    assert as_markdown(setting_rows(SETTINGS_CLASSES, with_values=False)) == before
    meaning = WorkerSettings.model_fields["max_batch_size"].description
    assert f"| `--max-batch-size` | `REDBATCH_MAX_BATCH_SIZE` | worker | `64` | {meaning} |" in before
    assert all(line.count("|") - line.count("\\|") == 6 for line in before.splitlines())
