"""Which settings a worker accepts and refuses."""

from __future__ import annotations

import socket

import pytest
from pydantic import ValidationError

from gpuworker.policy.circuit import CircuitOptions
from gpuworker.policy.retries import RetryLimits
from gpuworker.settings import WorkerSettings
from gpuworker.settings_groups import (
    BatchSettings,
    BulkSettings,
    HeartbeatSettings,
    LeaseSettings,
    RenewalSettings,
    RetrySettings,
)
from shared.process.settings import EXIT_CONFIGURATION, read_settings


@pytest.mark.parametrize(("text", "accepted"), [("auto", "auto"), ("0", 0.0), ("2.5", 2.5), ("60000", 60_000.0)])
def test_a_wait_is_a_number_or_auto(text: str, accepted: float | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a flag, which is text, and as an environment variable."""
    assert read_settings(WorkerSettings, {"max_batch_wait_ms": text}).max_batch_wait_ms == accepted
    monkeypatch.setenv("REDBATCH_MAX_BATCH_WAIT_MS", text)
    assert read_settings(WorkerSettings).max_batch_wait_ms == accepted


@pytest.mark.parametrize("name", ["cores", "runners", "max_batch_tokens"])
def test_auto_is_the_same_as_not_set(name: str) -> None:
    """As a flag, which is text; a number is a number."""
    assert getattr(read_settings(WorkerSettings, {name: "auto"}), name) is None
    assert getattr(read_settings(WorkerSettings, {name: "3"}), name) == 3


def test_there_is_no_wait_by_default() -> None:
    """The default is no wait, and not an adaptive one."""
    assert WorkerSettings().max_batch_wait_ms == 0


@pytest.mark.parametrize("text", ["-1", "60001", "automatic", "nan", "", "5ms"])
def test_any_other_wait_is_refused_in_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The line names the flag and the variable, and the accepted values."""
    with pytest.raises(SystemExit) as exited:
        read_settings(WorkerSettings, {"max_batch_wait_ms": text})
    assert exited.value.code == EXIT_CONFIGURATION
    (line,) = capsys.readouterr().err.splitlines()
    assert "--max-batch-wait-ms (REDBATCH_MAX_BATCH_WAIT_MS)" in line
    assert "a number from 0 to 60000, or auto" in line
    assert repr(text) in line


@pytest.mark.parametrize("text", ["", "{}", '{"a": [1, null]}'])
def test_the_arguments_of_a_model_are_a_json_object(text: str) -> None:
    """Or empty."""
    assert WorkerSettings(model_args=text).model_args == text


@pytest.mark.parametrize("text", ["a=1", "[1]", "7", "{", "null"])
def test_other_arguments_are_refused_in_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The line names the flag and the accepted values."""
    with pytest.raises(SystemExit):
        read_settings(WorkerSettings, {"model_args": text})
    (line,) = capsys.readouterr().err.splitlines()
    assert "--model-args (REDBATCH_MODEL_ARGS)" in line
    assert 'it takes a JSON object, such as {"name": "value"}' in line


def test_groups_have_the_values_of_the_flat_settings() -> None:
    """Milliseconds become seconds where the code needs seconds; `auto` becomes None."""
    settings = WorkerSettings(
        gpu_lease="batch",
        gpu_lease_pool="pool",
        gpu_lease_dir="/locks",
        max_batch_wait_ms=250,
        bulk_age_bound_ms=1_500,
        renew_ms=100,
        max_attempts=2,
    )
    assert settings.lease == LeaseSettings("batch", "pool", 1, 1, 15.0, 2.0, 5.0, "/locks")
    assert settings.batching == BatchSettings(64, None, 0.25, 0.2)
    assert settings.bulk == BulkSettings(0.1, 1.5, 1.1)
    assert settings.heartbeat == HeartbeatSettings(1.0, 5.0)
    assert settings.renewal == RenewalSettings(0.1, 3_000)
    assert settings.retries == RetrySettings(2, 200, RetryLimits(3, 0.2))
    assert settings.circuit == CircuitOptions(10.0, 5.0)
    assert WorkerSettings(max_batch_wait_ms="auto").batching.wait_s is None


def test_an_unnamed_pool_is_this_host() -> None:
    """Workers of one host share its GPUs without a name for them."""
    assert WorkerSettings().lease.pool == socket.gethostname()


def test_the_claim_window_follows_the_batch_size() -> None:
    """Unless it is set: it has room for four batches of single inputs, and at least for 256."""
    assert WorkerSettings().effective_claim_window == 256
    assert read_settings(WorkerSettings, {"claim_window": "auto"}).claim_window is None
    assert WorkerSettings(max_batch_size=10_000).effective_claim_window == 40_000
    assert WorkerSettings(max_batch_size=100, claim_window=150).effective_claim_window == 150


def test_a_claim_window_below_the_batch_size_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """No batch of single inputs would be full: the line says what to do."""
    with pytest.raises(SystemExit):
        read_settings(WorkerSettings, {"max_batch_size": "100", "claim_window": "99"})
    (line,) = capsys.readouterr().err.splitlines()
    assert "--claim-window (REDBATCH_CLAIM_WINDOW): at least --max-batch-size (100)" in line


def test_preferred_sizes_are_a_list_in_any_order() -> None:
    """They are kept in ascending order, each once; by default there are none."""
    assert WorkerSettings().preferred_batch_sizes == ""
    assert read_settings(WorkerSettings, {"preferred_batch_sizes": " 32, 8,16,8"}).preferred_batch_sizes == "8,16,32"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8;16", "separated by commas, such as 8,16,32"),
        ("8,,16", "separated by commas, such as 8,16,32"),
        ("0,8", "numbers from 1 on"),
        ("8,65", ": 65 is above --max-batch-size (64): raise that, or leave the size out"),
    ],
)
def test_other_preferred_sizes_are_refused_in_one_line(
    text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line says what the setting takes."""
    with pytest.raises(SystemExit):
        read_settings(WorkerSettings, {"preferred_batch_sizes": text})
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("model", "devices", "message"),
    [
        ("minilm", "0,1", "only your own class"),
        ("squares:Squares", "", "name the GPUs"),
        ("squares:Squares", "cpu,cpu", "name the GPUs"),
    ],
)
def test_only_a_function_spans_gpus_that_are_named(model: str, devices: str, message: str) -> None:
    """Otherwise the setting would be ignored."""
    assert WorkerSettings(model="squares:Squares", devices="0,1", span=True).span
    with pytest.raises(ValidationError, match=message):
        WorkerSettings(model=model, devices=devices, span=True)


def test_a_span_takes_no_lease_and_each_gpu_is_named_once() -> None:
    """A lease is for one GPU; an engine twice on one GPU would compete with itself."""
    with pytest.raises(ValidationError, match="span: not with gpu_lease"):
        WorkerSettings(model="squares:Squares", devices="0,1", span=True, gpu_lease="batch", gpu_lease_gpus=2)
    for devices in ("0,0", "cuda:0,cuda"):
        with pytest.raises(ValidationError, match="name each GPU once"):
            WorkerSettings(devices=devices)
