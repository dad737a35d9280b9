"""What a model is, by its files: as authors publish them, and as sentence-transformers saves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuworker.backends.selection import find_type, load_backend
from gpuworker.model_files import find_in, read_files
from gpuworker.model_spec import ModelLoadError, ops_of, parse_model
from gpuworker.model_type import ModelFiles, ModelType, name_of_ops, type_of
from shared.messages import CLASSIFIER_OPS, RERANKER_OPS, TEXT_OPS, TOKENIZER_OPS
from tests.scoring_models import LABELS, build_scoring_model, save_as_cross_encoder
from tests.unit.gpuworker.backends.options import OPTIONS

TRANSFORMER = {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}
POOLING = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}
LOGIT_SCORE = {"type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore", "path": "1_LogitScore"}
SPLADE = {"type": "sentence_transformers.sparse_encoder.models.SpladePooling.SpladePooling", "path": "1_SpladePooling"}
SAVED = {"model_type": "CrossEncoder"}
ROUTER = {"type": "sentence_transformers.base.modules.router.Router", "path": ""}
PAIR_TEMPLATE = "{% for m in messages %}{% if m.role == 'query' %}...{% elif m.role == 'document' %}...{% endif %}"
CHAT_TEMPLATE = "{% for m in messages %}{% if m.role == 'user' %}...{% endif %}{% endfor %}"


def config(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    """Returns a config.json with one architecture."""
    return {"architectures": [name], **fields}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (ModelFiles(config("BertModel")), ModelType("embedding")),
        (ModelFiles({}), ModelType("embedding")),
        (ModelFiles(config("BertForMaskedLM")), ModelType("embedding")),
        (ModelFiles(config("BertForMaskedLM"), [TRANSFORMER, SPLADE]), ModelType("sparse")),
        (ModelFiles({}, [TRANSFORMER], {"model_type": "SparseEncoder"}), ModelType("sparse")),
        (ModelFiles({}, [TRANSFORMER], {"model_type": "MultiVectorEncoder"}), ModelType("multi-vector")),
        (ModelFiles({}, [TRANSFORMER], {"model_type": "ColBERT"}), ModelType("multi-vector")),
        (ModelFiles(config("HF_ColBERT")), ModelType("multi-vector")),
        (
            ModelFiles(config("XLMRobertaModel"), [TRANSFORMER, POOLING], heads=["colbert_linear", "sparse_linear"]),
            ModelType("hybrid", parts=("dense", "sparse", "multi_vector")),
        ),
        (ModelFiles(config("BertModel"), heads=["sparse_linear"]), ModelType("hybrid", parts=("dense", "sparse"))),
        (
            ModelFiles(config("BertModel"), heads=["colbert_linear"]),
            ModelType("hybrid", parts=("dense", "multi_vector")),
        ),
        (
            ModelFiles(config("BertForSequenceClassification", num_labels=1), heads=["sparse_linear"]),
            ModelType("reranker", ("LABEL_0",), "sigmoid"),
        ),
        (ModelFiles(config("BertForSequenceClassification"), [TRANSFORMER, POOLING]), ModelType("embedding")),
        (ModelFiles(config("Qwen3ForCausalLM"), [TRANSFORMER, POOLING]), ModelType("embedding")),
        (
            ModelFiles(config("XLMRobertaForSequenceClassification", id2label={"0": "LABEL_0"})),
            ModelType("reranker", ("LABEL_0",), "sigmoid"),
        ),
        (
            ModelFiles(config("Qwen3ForCausalLM"), templates=[CHAT_TEMPLATE, PAIR_TEMPLATE]),
            ModelType("reranker", ("LABEL_0",), "sigmoid"),
        ),
        (
            ModelFiles(config("Qwen3ForCausalLM"), [TRANSFORMER, LOGIT_SCORE], SAVED, [PAIR_TEMPLATE]),
            ModelType("reranker", ("LABEL_0",), "sigmoid"),
        ),
        (
            ModelFiles(config("BertForSequenceClassification", num_labels=1), [TRANSFORMER]),
            ModelType("reranker", ("LABEL_0",), "sigmoid"),
        ),
        (
            ModelFiles(config("NewBert", id2label={"0": "relevance"}), [TRANSFORMER], {"model_type": "CrossEncoder"}),
            ModelType("reranker", ("relevance",), "sigmoid"),
        ),
        (
            ModelFiles(config("BertForSequenceClassification", id2label={"10": "k", "9": "j", "0": "a"})),
            ModelType("classifier", ("a", "j", "k"), "softmax"),
        ),
        (
            ModelFiles(config("BertForSequenceClassification")),
            ModelType("classifier", ("LABEL_0", "LABEL_1"), "softmax"),
        ),
        (
            ModelFiles(config("BertForSequenceClassification", problem_type="multi_label_classification")),
            ModelType("classifier", ("LABEL_0", "LABEL_1"), "sigmoid"),
        ),
        (
            ModelFiles({"architectures": "BertForSequenceClassification", "id2label": [1]}),
            ModelType("embedding"),
        ),
    ],
)
def test_a_served_model_is_what_its_files_say(files: ModelFiles, expected: ModelType) -> None:
    """A model that sentence-transformers has saved says it itself; otherwise the class of its transformer does."""
    assert type_of(files) == expected
    assert name_of_ops(expected.ops) == expected.name
    assert name_of_ops([each for each in expected.ops if each not in TOKENIZER_OPS]) == expected.name


@pytest.mark.parametrize(
    ("files", "name", "reason"),
    [
        (
            ModelFiles({}, [ROUTER, SPLADE], {"model_type": "SparseEncoder"}),
            "sparse",
            "with a separate way for queries",
        ),
        (ModelFiles(config("BertForTokenClassification")), "token-classifier", "labels single tokens"),
        (ModelFiles(config("GPT2LMHeadModel")), "causal", "add the chat_template.jinja of its authors"),
        (ModelFiles(config("Qwen3ForCausalLM")), "causal", "add the chat_template.jinja of its authors"),
        (
            ModelFiles(config("Qwen3ForCausalLM"), templates=[CHAT_TEMPLATE]),
            "causal",
            "save it with sentence-transformers as a SentenceTransformer with its Pooling",
        ),
        (
            ModelFiles(config("Qwen3ForCausalLM"), [TRANSFORMER, LOGIT_SCORE], {"model_type": "CrossEncoder"}),
            "reranker",
            "add the chat_template.jinja of its authors",
        ),
    ],
)
def test_a_model_that_is_not_served_says_what_to_do(files: ModelFiles, name: str, reason: str) -> None:
    """Its vectors would mean nothing, or its scores would be random. It offers no operations."""
    found = type_of(files)
    assert (found.name, found.ops) == (name, ())
    assert reason in found.refusal


def test_the_config_of_a_transformer_in_its_folder_is_read(tmp_path: Path) -> None:
    """modules.json says where it is; a template is in a separate file, or in the config of the tokenizer."""
    place = tmp_path / "0_Transformer"
    place.mkdir()
    (tmp_path / "modules.json").write_text(json.dumps([TRANSFORMER | {"path": "0_Transformer"}, "no module"]))
    (place / "config.json").write_text(json.dumps(config("BertForSequenceClassification", num_labels=1)))
    (place / "chat_template.jinja").write_text(PAIR_TEMPLATE)
    templates = [{"name": "default", "template": CHAT_TEMPLATE}, {"name": "broken"}]
    (place / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    files = read_files(find_in(tmp_path))
    assert files.templates == [CHAT_TEMPLATE, PAIR_TEMPLATE]
    assert type_of(files).name == "reranker"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_a_file_that_cannot_be_parsed_is_empty(tmp_path: Path, content: bytes) -> None:
    """The library that loads the model says what is wrong with it."""
    for name in ("config.json", "modules.json", "config_sentence_transformers.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes(content)
    assert type_of(read_files(find_in(tmp_path))) == ModelType("embedding")


@pytest.mark.model
def test_folders_that_the_libraries_save_are_found_out(tmp_path: Path) -> None:
    """By the worker before the model is loaded, and by the engine."""
    reranker = build_scoring_model(tmp_path / "reranker")
    classifier = build_scoring_model(tmp_path / "classifier", LABELS)
    saved = save_as_cross_encoder(tmp_path / "saved", reranker)
    for folder, ops in ((reranker, RERANKER_OPS), (classifier, CLASSIFIER_OPS), (saved, RERANKER_OPS)):
        assert ops_of(str(folder)) == ops
        assert find_type(parse_model(str(folder)), None).ops == ops
    assert ops_of("minilm") == TEXT_OPS
    assert ops_of("someone/on-the-hub") == ()


@pytest.mark.model
def test_a_refused_folder_is_not_loaded(tmp_path: Path) -> None:
    """The error of the engine, in one line."""
    (tmp_path / "config.json").write_text(json.dumps(config("Qwen3ForCausalLM")))
    with pytest.raises(ModelLoadError, match=r"is not served: .*chat_template\.jinja") as refused:
        load_backend(parse_model(str(tmp_path)), OPTIONS)
    assert "\n" not in str(refused.value)
