"""The table of settings."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from pydantic_settings import BaseSettings
from rich.console import Console

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.settings_view import (
    UnknownSettingError,
    as_json,
    as_markdown,
    find_setting,
    print_details,
    print_table,
    setting_rows,
)

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


@pytest.mark.parametrize("names", [("gateway", "worker"), ("gateway",), ("worker",)])
def test_each_setting_is_one_whole_line(names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In 80 columns each setting is one line with its name, value and title, none of which is cut.

    Without a title, the beginning of its meaning stands for it, up to the end of a clause. Passwords are masked, and a
    value that is not the default has a mark.
    """
    monkeypatch.setenv("REDBATCH_REDIS_URL", "redis://:secret@host/0")
    rows, output = setting_rows({name: SETTINGS_CLASSES[name] for name in names}), io.StringIO()
    print_table(rows, Console(file=output, width=80))
    lines = output.getvalue().splitlines()
    assert "secret" not in output.getvalue()
    assert max(map(len, lines)) <= 80
    headings = ("Gateways and workers:", "Gateways:", "Workers:")
    for row, line in zip(rows, (line for line in lines if line not in headings), strict=False):
        name, value, text = line.split(maxsplit=2)
        assert (name, value.rstrip("*")) == (row.setting.name, row.shown_value)
        assert value.endswith("*") == row.is_changed
        if row.setting.title:
            assert text == row.setting.title
            assert not text.endswith(".")
        else:
            assert row.setting.meaning.startswith((f"{text}.", f"{text};"))
    assert any(line.split()[:2] == ["redis_url", "redis://:***@host/0*"] for line in lines)


def test_with_the_defaults_no_line_is_cut() -> None:
    """No line of `redbatch settings` is cut in 80 columns where the environment sets nothing."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDBATCH_")}
    command = [sys.executable, "-m", "redbatch", "settings"]
    ran = subprocess.run(command, env={**environment, "COLUMNS": "80"}, capture_output=True, text=True, check=True)
    *lines, note, note_end = ran.stdout.splitlines()
    num_headings = 3
    assert len(lines) == num_headings + len(setting_rows(SETTINGS_CLASSES, with_values=False))
    assert [line for line in lines if line.endswith("…") or len(line) > 80] == []
    assert note.startswith("`redbatch settings NAME` shows all")
    assert note_end.endswith("REDBATCH_A_SETTING.")


def test_a_title_does_not_replace_the_meaning() -> None:
    """JSON, the Markdown table and the page of one setting have the whole description, and not the title."""
    rows, titled = setting_rows(SETTINGS_CLASSES), 0
    for row in rows:
        fields = [
            SETTINGS_CLASSES[name].model_fields for name in ("gateway", "worker") if row.process in (name, "both")
        ]
        field, output = fields[0][row.setting.name], io.StringIO()
        assert field.description
        assert json.loads(as_json([row]))[0]["meaning"] == field.description
        print_details([row], Console(file=output, width=10_000))
        for text in (output.getvalue(), as_markdown([row])):
            assert field.description in text
            if field.title:
                assert field.title not in text.replace(field.description, "")
                titled += 1
    assert titled


@pytest.mark.parametrize("text", ["max_batch_size", "--max-batch-size", "REDBATCH_MAX_BATCH_SIZE", "Max-Batch-Size"])
def test_a_setting_is_found_by_each_of_its_names(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name, flag and variable find a setting; the details have all of these, its value and the allowed ones."""
    monkeypatch.setenv("REDBATCH_MAX_BATCH_SIZE", "7")
    output = io.StringIO()
    print_details(find_setting(setting_rows(SETTINGS_CLASSES), text), Console(file=output, width=80))
    meaning = WorkerSettings.model_fields["max_batch_size"].description
    assert meaning is not None
    names = ("--max-batch-size", "REDBATCH_MAX_BATCH_SIZE")
    for expected in (*names, meaning, "default   64", "7 (set in this environment)", "a whole number from 1 to 10000"):
        assert expected in output.getvalue()


def test_a_setting_with_two_meanings_has_both() -> None:
    """A setting that gateways and workers read differently is shown for each."""
    rows = find_setting(setting_rows(SETTINGS_CLASSES), "admin_port")
    assert [(row.process, row.setting.default) for row in rows] == [("gateway", "9090"), ("worker", "9091")]


def test_an_unknown_setting_has_suggestions() -> None:
    """A misspelt name is an error with similar names; one that resembles none says how to list all."""
    rows = setting_rows(SETTINGS_CLASSES)
    with pytest.raises(UnknownSettingError, match=r"no setting --max-batch-sice: did you mean max_batch_size"):
        find_setting(rows, "--max-batch-sice")
    with pytest.raises(UnknownSettingError, match=r"no setting zzz: `redbatch settings` lists all"):
        find_setting(rows, "zzz")


def test_allowed_values_are_in_words() -> None:
    """Bounds, choices and alternatives of all settings are described without patterns or types of Python."""
    allowed = {row.setting.name: row.setting.takes for row in setting_rows(SETTINGS_CLASSES)}
    assert allowed["redis_timeout_s"] == "a number from 0.5 to 60"
    assert allowed["max_batch_wait_ms"] == "a number from 0 to 60000 or auto"
    assert allowed["backend"] == "torch, onnx or openvino"
    assert allowed["log_level"] == "debug, info, warning or error"
    assert allowed["all_queues"] == "true or false"
    assert allowed["redis_url"] == ""
    assert not any(sign in text for text in allowed.values() for sign in "^$|[")


def test_markdown_does_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Markdown table has no values of this environment."""
    before = as_markdown(setting_rows(SETTINGS_CLASSES, with_values=False))
    monkeypatch.setenv("REDBATCH_MAX_BATCH_SIZE", "7")
    assert as_markdown(setting_rows(SETTINGS_CLASSES, with_values=False)) == before
    meaning = WorkerSettings.model_fields["max_batch_size"].description
    assert f"| `--max-batch-size` | `REDBATCH_MAX_BATCH_SIZE` | worker | `64` | {meaning} |" in before
    assert all(line.count("|") - line.count("\\|") == 6 for line in before.splitlines())
