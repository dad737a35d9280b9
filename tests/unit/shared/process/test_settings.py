"""Reading settings, and the errors for invalid ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from shared.process.settings import EXIT_CONFIGURATION, read_file_variables, read_settings


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line wins over the environment, which wins over the default; text becomes the field's type."""
    monkeypatch.setenv("REDBATCH_MAX_BATCH_SIZE", "7")
    monkeypatch.setenv("REDBATCH_CLAIM_WINDOW", "9")
    settings = read_settings(WorkerSettings, {"max_batch_size": "8", "max_batch_tokens": "4096"})
    assert (settings.max_batch_size, settings.claim_window, settings.max_batch_tokens) == (8, 9, 4096)


def test_each_problem_is_a_line_with_flag_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    """All problems are reported at once, with the invalid values, and the exit code is 2."""
    with pytest.raises(SystemExit) as left:
        read_settings(GatewaySettings, {"port": "70000", "log_level": "loud"})
    assert left.value.code == EXIT_CONFIGURATION
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "--log-level (REDBATCH_LOG_LEVEL)" in lines[0]
    assert "'loud'" in lines[0]
    assert "--port (REDBATCH_PORT)" in lines[1]
    assert "65535" in lines[1]


def test_a_variable_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret is read from a file without the final newline of editors, and is a setting like any other."""
    (tmp_path / "url").write_text("redis://:secret@redis:6379/0\n", encoding="utf-8")
    monkeypatch.setenv("REDBATCH_REDIS_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("REDBATCH_REDIS_URL", "")  # so that the test restores it
    monkeypatch.delenv("REDBATCH_REDIS_URL")
    assert read_settings(WorkerSettings).redis_url == "redis://:secret@redis:6379/0"
    assert read_settings(WorkerSettings).redis_url == "redis://:secret@redis:6379/0"


def test_the_file_dev_null_sets_nothing() -> None:
    """A file of a stack that follows another one can change its variables, but neither remove nor empty them."""
    environment = {"REDBATCH_REDIS_URL_FILE": "/dev/null", "REDBATCH_REDIS_URL": "redis://a"}
    read_file_variables(environment)
    assert environment == {"REDBATCH_REDIS_URL": "redis://a"}


def test_a_setting_that_is_a_file_sets_no_other_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password in it is read for each connection, so the setting is the path, not the content."""
    (tmp_path / "password").write_text("secret\n", encoding="utf-8")
    monkeypatch.setenv("REDBATCH_REDIS_PASSWORD_FILE", str(tmp_path / "password"))
    for settings_type in (GatewaySettings, WorkerSettings):
        assert read_settings(settings_type).redis_password_file == str(tmp_path / "password")
    assert "REDBATCH_REDIS_PASSWORD" not in os.environ


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"REDBATCH_REDIS_URL_FILE": "/dev/null/none"}, "REDBATCH_REDIS_URL_FILE: /dev/null/none cannot be read"),
        (
            {"REDBATCH_REDIS_URL_FILE": "f", "REDBATCH_REDIS_URL": "u"},
            "is set too; use one of them",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_reported(
    environment: dict[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is a line without the content of the file."""
    with pytest.raises(SystemExit) as left:
        read_file_variables(environment)
    assert left.value.code == EXIT_CONFIGURATION
    assert words in capsys.readouterr().err
