"""What the libraries say while a model loads: records of the log, and nothing on stderr."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from structlog.testing import capture_logs
from transformers import BertConfig, BertForSequenceClassification

from gpuworker.backends.library_log import LOADS, log_library_records
from gpuworker.backends.sentence import SentenceBackend
from gpuworker.model_spec import parse_model
from tests.unit.gpuworker.backends.options import OPTIONS
from tests.unit.gpuworker.backends.test_architectures import ARCHITECTURES, SIZES, build

pytestmark = pytest.mark.model


def records_of(folder: Path) -> list[tuple[str, str]]:
    """Returns level and reason of each record of a library while a model loads."""
    with capture_logs() as logs:
        SentenceBackend(parse_model(str(folder)), OPTIONS)
    written = (each for each in logs if each["event"] == LOADS and each["log_level"] != "debug")
    return [(each["log_level"], each["reason"]) for each in written]


@pytest.mark.parametrize("is_incomplete", [False, True])
def test_weights_that_do_not_match_are_a_record(
    tmp_path: Path, is_incomplete: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Weights that a model has no use for are normal; that some are missing, and so random, is a warning."""
    BertForSequenceClassification(BertConfig(vocab_size=30_522, **SIZES)).save_pretrained(tmp_path)
    SentenceTransformer(parse_model("minilm").path).tokenizer.save_pretrained(tmp_path)
    if is_incomplete:
        weights = load_file(tmp_path / "model.safetensors")
        del weights["bert.encoder.layer.0.output.dense.weight"]
        save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    capfd.readouterr()  # what the libraries said to this test
    ((level, reason),) = records_of(tmp_path)
    random = "; the files lack these, which are random: encoder.layer.0.output.dense.weight" if is_incomplete else ""
    assert reason == f"weights of BertModel: it has no use for classifier.bias, classifier.weight{random}"
    assert level == ("warning" if is_incomplete else "info")
    assert capfd.readouterr().err == ""


def test_a_long_list_of_weights_is_cut() -> None:
    """A line says how many there are."""
    rows = "\n".join(f"weight_{chr(97 + i)} | UNEXPECTED |  | " for i in range(12))
    log_library_records()
    with capture_logs() as logs:
        logging.getLogger("transformers.modeling_utils").warning("%s", f"X LOAD REPORT from: y\nKey | Status\n{rows}")
    assert logs[0]["reason"].endswith("weight_g, weight_h and 4 more")


def test_what_a_backend_tries_by_itself_is_silent(tmp_path: Path) -> None:
    """Packing is tried with each model: that one does without is in the line `engine ready`, as `packed`."""
    assert records_of(build(ARCHITECTURES["MPNet"], tmp_path)) == []


def test_errors_of_a_library_stay_errors(tmp_path: Path) -> None:
    """Only warnings are less than they say."""
    SentenceTransformer(parse_model("minilm").path).save(str(tmp_path))
    assert records_of(tmp_path) == []
    with capture_logs() as logs:
        logging.getLogger("transformers.modeling_utils").error("no %s", "such thing")
    assert [(each["log_level"], each["reason"]) for each in logs] == [("error", "no such thing")]
