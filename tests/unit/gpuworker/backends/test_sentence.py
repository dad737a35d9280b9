"""Models other than the bundled one, from a folder: the backend returns the vectors of `encode`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from structlog.testing import capture_logs
from transformers import ModernBertConfig, ModernBertModel

from gpuworker.backends.base import InputRefusedError
from gpuworker.backends.precision import cast_weights, dtype_of
from gpuworker.backends.sentence import SentenceBackend
from gpuworker.backends.tokenizer import TokenizedInput
from gpuworker.backends.transformer_backend import num_runners
from gpuworker.backends.whole_texts import WholeText
from gpuworker.model_spec import ModelLoadError, parse_model
from shared.codec import encode_ids
from shared.messages import DEFAULT_OPTIONS, EMBED_ALL, Options
from tests.unit.gpuworker.backends.options import OPTIONS
from tests.unit.gpuworker.backends.test_architectures import ARCHITECTURES, build

pytestmark = pytest.mark.model

TEXTS = ["hello", "A longer text, of more words than the first one has.", "Ünïcödé 漢字", "x " * 700]


def test_a_model_without_a_transformer_gets_whole_texts(tmp_path: Path) -> None:
    """A static embedding has no transformer: its texts go through `encode`."""
    words = SentenceTransformer(parse_model("minilm").path).tokenizer.backend_tokenizer
    SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=32)]).save(str(tmp_path))
    backend = SentenceBackend(parse_model(str(tmp_path)), OPTIONS)
    inputs = backend.tokenize(TEXTS)
    assert all(isinstance(each, WholeText) and each.tokens >= 1 for each in inputs)
    expected = SentenceTransformer(str(tmp_path)).encode(TEXTS)
    assert backend.dim == 32
    with pytest.raises(InputRefusedError, match="no vectors of tokens"):
        backend.run(backend.collate(inputs), EMBED_ALL, exclusive=True)
    for operation, value in ((backend.show_tokens, "a"), (backend.decode, encode_ids([1]))):
        with pytest.raises(InputRefusedError, match="shows no tokens"):
            operation([value], DEFAULT_OPTIONS)
    assert np.abs(backend.run(backend.collate(inputs), exclusive=True) - expected).max() <= 1e-5


def test_a_default_prompt_is_put_before_each_text(tmp_path: Path) -> None:
    """A model with a default prompt gets it as in `encode`; with an empty name of a prompt it gets none."""
    model = SentenceTransformer(parse_model("minilm").path, prompts={"query": "query: "}, default_prompt_name="query")
    model.save(str(tmp_path))
    backend = SentenceBackend(parse_model(str(tmp_path)), OPTIONS)
    inputs = backend.tokenize(TEXTS)
    assert all(isinstance(each, TokenizedInput) for each in inputs)
    prompted = SentenceTransformer(str(tmp_path))
    expected = prompted.encode(TEXTS)
    assert np.abs(backend.run(backend.collate(inputs), exclusive=True) - expected).max() <= 1e-5
    plain = backend.collate(backend.tokenize(TEXTS, Options(prompt_name="")))
    assert np.abs(backend.run(plain, exclusive=True) - prompted.encode(TEXTS, prompt="")).max() <= 1e-5
    assert len(backend.tokenize([encode_ids([101, 102]), "a"], Options(prompt_name=""))) == 2


def test_a_folder_without_a_model_is_reported_in_one_line(tmp_path: Path) -> None:
    """The error says that the model cannot be loaded, without a line break."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelLoadError, match="cannot be loaded") as caught:
        SentenceBackend(parse_model(str(tmp_path)), OPTIONS)
    assert "\n" not in str(caught.value)


def reasons_to_doubt(folder: Path) -> list[str]:
    """Returns the warnings of a model that is loaded."""
    with capture_logs() as logs:
        SentenceBackend(parse_model(str(folder)), OPTIONS)
    return [each["reason"] for each in logs if "probably of no use" in each["event"]]


@pytest.mark.parametrize("name", ["BERT", "RoBERTa"])
def test_a_folder_without_a_tokenizer_is_a_warning(tmp_path: Path, name: str) -> None:
    """The library then makes a tokenizer without words: the vector of a text says only how many words it has."""
    folder = build(ARCHITECTURES[name], tmp_path)
    assert reasons_to_doubt(folder) == []
    for file in folder.glob("tokenizer*"):
        file.unlink()
    (reason,) = reasons_to_doubt(folder)
    assert "tokenizer.json is missing" in reason


def test_a_checkpoint_in_half_precision_is_served_in_float32_on_a_cpu(tmp_path: Path) -> None:
    """The format of the file does not decide: `dtype=auto` is float32 on a CPU, and so is `dtype=float32`."""
    model = SentenceTransformer(parse_model("minilm").path, model_kwargs={"dtype": torch.float16})
    model.save(str(tmp_path))
    expected = SentenceTransformer(str(tmp_path), model_kwargs={"dtype": torch.float32}).encode(TEXTS)
    for dtype in ("auto", "float32"):
        backend = SentenceBackend(parse_model(str(tmp_path)), replace(OPTIONS, dtype=dtype))
        assert np.abs(backend.run(backend.collate(backend.tokenize(TEXTS)), exclusive=True) - expected).max() <= 1e-5


@pytest.mark.parametrize(
    ("name", "device", "has_bfloat16", "expected"),
    [
        ("auto", "cpu", True, torch.float32),
        ("auto", "mps", True, torch.float32),
        ("auto", "cuda:1", True, torch.bfloat16),
        ("auto", "cuda", False, torch.float16),
        ("float32", "cuda", True, torch.float32),
        ("bfloat16", "cpu", False, torch.bfloat16),
    ],
)
def test_auto_is_the_short_format_that_a_gpu_computes_in(
    name: str, device: str, has_bfloat16: bool, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is float32 on other devices; an explicit format is used on any device."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda *, including_emulation: has_bfloat16 or including_emulation
    )
    assert dtype_of(name, device) == expected


def test_tables_of_rotary_positions_keep_their_format() -> None:
    """In a short format the angle of a late position would be off by whole turns."""
    config = ModernBertConfig(
        vocab_size=64, pad_token_id=0, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1
    )
    model = ModernBertModel(config)
    cast_weights([model], torch.bfloat16)  # type: ignore[arg-type]
    assert {each.dtype for each in model.parameters()} == {torch.bfloat16}
    tables = [each for name, each in model.named_buffers() if "inv_freq" in name]
    assert tables
    assert {each.dtype for each in tables} == {torch.float32}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_short_format_gives_nearly_the_same_vectors(dtype: str) -> None:
    """They are float32 of length 1, close to those in float32: only the transformer has the short format."""
    full = SentenceBackend(parse_model("minilm"), OPTIONS)
    short = SentenceBackend(parse_model("minilm"), replace(OPTIONS, dtype=dtype))
    texts = TEXTS * 2
    expected, found = (
        np.asarray(backend.run(backend.collate(backend.tokenize(texts)), exclusive=True)) for backend in (full, short)
    )
    assert found.dtype == np.float32
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-5
    assert (found * expected).sum(axis=1).min() > 0.999
    assert not np.array_equal(found, expected)


def test_a_cpu_has_a_runner_for_each_core_that_it_may_use() -> None:
    """With many cores a runner has several, so that no core is left over; the settings may set another number."""
    assert SentenceBackend(parse_model("minilm"), replace(OPTIONS, cores=3)).runners == 3
    assert SentenceBackend(parse_model("minilm"), replace(OPTIONS, cores=3, runners=1)).runners == 1
    assert SentenceBackend(parse_model("minilm"), replace(OPTIONS, cores=12)).runners == 6, "two cores each"


@pytest.mark.parametrize("device", ["cuda:0", "mps"])
def test_a_gpu_has_one_runner(device: str) -> None:
    """Two threads that submit kernels delay each other; the settings may set another number all the same."""
    assert num_runners(replace(OPTIONS, cores=16), device, cores=16) == 1
    assert num_runners(replace(OPTIONS, runners=2), device, cores=16) == 2
    with pytest.raises(ModelLoadError, match="one batch at a time"):
        num_runners(replace(OPTIONS, runners=2, compile=True), device, cores=16)
