"""What a worker's settings take and refuse."""

from __future__ import annotations

import pytest

from gpuworker.settings import WorkerSettings
from shared.process.settings import EXIT_CONFIGURATION, read_settings


@pytest.mark.parametrize(("given", "taken"), [("auto", "auto"), ("0", 0.0), ("2.5", 2.5), ("60000", 60_000.0)])
def test_a_wait_is_a_number_or_auto(given: str, taken: float | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a flag, which is text, and as a variable."""
    assert read_settings(WorkerSettings, {"max_batch_wait_ms": given}).max_batch_wait_ms == taken
    monkeypatch.setenv("REDBATCH_MAX_BATCH_WAIT_MS", given)
    assert read_settings(WorkerSettings).max_batch_wait_ms == taken


@pytest.mark.parametrize("name", ["cores", "runners", "max_batch_tokens"])
def test_auto_is_the_same_as_not_set(name: str) -> None:
    """As a flag, which is text; a number is a number."""
    assert getattr(read_settings(WorkerSettings, {name: "auto"}), name) is None
    assert getattr(read_settings(WorkerSettings, {name: "3"}), name) == 3


def test_nobody_waits_unless_told() -> None:
    """The default is no wait, and not an adaptive one."""
    assert WorkerSettings().max_batch_wait_ms == 0


@pytest.mark.parametrize("given", ["-1", "60001", "automatic", "nan", "", "5ms"])
def test_any_other_wait_is_refused_in_one_line(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the flag and the variable, and says what would be taken."""
    with pytest.raises(SystemExit) as left:
        read_settings(WorkerSettings, {"max_batch_wait_ms": given})
    assert left.value.code == EXIT_CONFIGURATION
    (line,) = capsys.readouterr().err.splitlines()
    assert "--max-batch-wait-ms (REDBATCH_MAX_BATCH_WAIT_MS)" in line
    assert "a number from 0 to 60000, or auto" in line
    assert repr(given) in line


@pytest.mark.parametrize("given", ["", "{}", '{"a": [1, null]}'])
def test_the_arguments_of_a_model_are_a_json_object(given: str) -> None:
    """Or nothing."""
    assert WorkerSettings(model_args=given).model_args == given


@pytest.mark.parametrize("given", ["a=1", "[1]", "7", "{", "null"])
def test_other_arguments_are_refused_in_one_line(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the flag, and says what would be taken."""
    with pytest.raises(SystemExit):
        read_settings(WorkerSettings, {"model_args": given})
    (line,) = capsys.readouterr().err.splitlines()
    assert "--model-args (REDBATCH_MODEL_ARGS)" in line
    assert "JSON" in line
