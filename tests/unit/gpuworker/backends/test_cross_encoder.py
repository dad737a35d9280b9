"""Rerankers and classifiers from a folder: the backend returns the logits of sentence-transformers' CrossEncoder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from torch.nn import Identity
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    CamembertConfig,
    CamembertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ElectraConfig,
    ElectraForSequenceClassification,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

from gpuworker.backends.base import Backend, InputRefusedError, InputTooLongError, OneInputError
from gpuworker.backends.selection import load_backend
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.model_spec import ModelLoadError, parse_model
from shared.codec import encode_ids
from shared.messages import CLASSIFIER_OPS, CLASSIFY, RERANKER_OPS, SCORE, Options
from tests.scoring_models import (
    LABELS,
    TEMPLATE,
    build_language_model_reranker,
    build_scoring_model,
    save_as_cross_encoder,
)
from tests.unit.gpuworker.backends.options import OPTIONS
from tests.unit.gpuworker.backends.test_architectures import SIZES

pytestmark = pytest.mark.model

QUERY = "What does the fox do?"
TEXTS = [
    "It jumps.",
    "The quick brown fox jumps over the lazy dog, and then over the next one.",
    "Ünïcödé 漢字",
    "x " * 700,
    "",
    "It jumps.",
]

ONE_LABEL: dict[str, Any] = {"num_labels": 1, "vocab_size": 30_522}
ARCHITECTURES: dict[str, Any] = {
    "BERT": partial(BertForSequenceClassification, BertConfig(**ONE_LABEL, **SIZES)),
    "ELECTRA": partial(
        ElectraForSequenceClassification,
        ElectraConfig(**ONE_LABEL, embedding_size=32, **SIZES),
    ),
    "RoBERTa": partial(RobertaForSequenceClassification, RobertaConfig(**ONE_LABEL, **SIZES)),
    "CamemBERT": partial(CamembertForSequenceClassification, CamembertConfig(**ONE_LABEL, **SIZES)),
    "XLM-RoBERTa": partial(XLMRobertaForSequenceClassification, XLMRobertaConfig(**ONE_LABEL, **SIZES)),
    "DistilBERT": partial(
        DistilBertForSequenceClassification,
        DistilBertConfig(**ONE_LABEL, dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    ),
    "ModernBERT": partial(
        ModernBertForSequenceClassification,
        ModernBertConfig(**ONE_LABEL, pad_token_id=0, **SIZES),
    ),
}


def load(folder: Path, options: EngineOptions = OPTIONS) -> Backend:
    """Returns the backend of a model in a folder."""
    return load_backend(parse_model(str(folder)), options)


def logits_of(backend: Backend, texts: Sequence[str], options: Options, op: str = SCORE) -> np.ndarray[Any, Any]:
    """Returns what the backend returns for these texts in one batch."""
    return np.asarray(backend.run(backend.collate(backend.tokenize(texts, options)), op, exclusive=False))


def expected_of(folder: Path, texts: Sequence[str], query: str = QUERY) -> np.ndarray[Any, Any]:
    """Returns the logits of the reference, of shape (texts, labels)."""
    model = CrossEncoder(str(folder))
    logits = np.asarray(model.predict([(query, each) for each in texts], activation_fn=Identity()))
    return logits.reshape(len(texts), -1)


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reranker."""
    return build_scoring_model(tmp_path_factory.mktemp("reranker"))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a classifier with three labels."""
    return build_scoring_model(tmp_path_factory.mktemp("classifier"), LABELS)


@pytest.mark.parametrize("with_modules", [False, True])
def test_a_reranker_has_the_logits_of_predict(tmp_path: Path, reranker: Path, *, with_modules: bool) -> None:
    """Pairs of different lengths in one batch, one of them cut, from a folder that either library has saved."""
    folder = save_as_cross_encoder(tmp_path, reranker) if with_modules else reranker
    backend = load(folder)
    assert (backend.ops, backend.dim) == (frozenset(RERANKER_OPS), 1)
    assert (tuple(backend.labels), backend.activation) == (("LABEL_0",), "sigmoid")
    assert backend.max_input_tokens == CrossEncoder(str(folder)).max_seq_length
    expected = expected_of(folder, TEXTS)
    assert expected.std() > 0.01, "the scores are too much alike for a comparison"
    assert np.abs(logits_of(backend, TEXTS, Options(query=QUERY)) - expected).max() <= 1e-5
    assert [each.truncated for each in backend.tokenize(TEXTS, Options(query=QUERY))] == [
        each == TEXTS[3] for each in TEXTS
    ]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_has_the_logits_of_predict(tmp_path: Path, name: str) -> None:
    """With and without token types, and without padding where the model can run so."""
    torch.manual_seed(3)
    ARCHITECTURES[name]().save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(parse_model("minilm").path).save_pretrained(tmp_path)
    texts = [each for each in TEXTS if len(each) < 512]  # the largest positions of these models differ
    backend = load(tmp_path)
    assert backend.packs is (name != "ModernBERT")
    assert np.abs(logits_of(backend, texts, Options(query=QUERY)) - expected_of(tmp_path, texts)).max() <= 1e-5


@pytest.mark.parametrize("shape_buckets", ["auto", "on"])
def test_token_types_of_a_pair_count(reranker: Path, shape_buckets: str) -> None:
    """The model tells the two texts of a pair apart: swapped, they have another score."""
    backend = load(reranker, replace(OPTIONS, shape_buckets=shape_buckets))
    there, back = (logits_of(backend, [text], Options(query=query))[0] for query, text in (("a", "b c"), ("b c", "a")))
    assert np.abs(there - back).max() > 1e-3
    texts = TEXTS[:3]
    assert np.abs(logits_of(backend, texts, Options(query=QUERY)) - expected_of(reranker, texts)).max() <= 1e-5


def test_a_classifier_has_a_logit_for_each_label(classifier: Path) -> None:
    """Of a pair, as `predict` has it, and of a single text."""
    backend = load(classifier)
    assert (backend.ops, backend.dim) == (frozenset(CLASSIFIER_OPS), 3)
    assert (tuple(backend.labels), backend.activation) == (LABELS, "softmax")
    pairs = logits_of(backend, TEXTS, Options(query=QUERY), CLASSIFY)
    assert np.abs(pairs - expected_of(classifier, TEXTS)).max() <= 1e-5
    model, tokenizer = (
        BertForSequenceClassification.from_pretrained(classifier),
        AutoTokenizer.from_pretrained(classifier),
    )
    features = tokenizer(TEXTS, padding=True, truncation=True, max_length=backend.max_input_tokens, return_tensors="pt")
    with torch.inference_mode():
        expected = model.eval()(**features).logits.numpy()
    assert np.abs(logits_of(backend, TEXTS, Options(), CLASSIFY) - expected).max() <= 1e-5


def test_a_classifier_of_several_labels_at_once_has_a_sigmoid_each(tmp_path: Path) -> None:
    """Its config names the type of its problem."""
    folder = build_scoring_model(tmp_path, LABELS, problem_type="multi_label_classification")
    assert load(folder).activation == "sigmoid"


def test_a_long_pair_is_cut_as_its_options_say(reranker: Path) -> None:
    """The longer text is cut first, at the end or at the beginning; or the pair is refused."""
    backend = load(reranker)
    long = " ".join(f"{number}" for number in range(2_000))
    right, left = (backend.tokenize([long], Options(query=QUERY, truncate=side))[0] for side in ("right", "left"))
    assert right.truncated
    assert left.truncated
    assert right.tokens == left.tokens == backend.max_input_tokens
    scores = [logits_of(backend, [long], Options(query=QUERY, truncate=side))[0, 0] for side in ("right", "left")]
    assert abs(scores[0] - expected_of(reranker, [long])[0, 0]) <= 1e-5
    assert abs(scores[0] - scores[1]) > 1e-4
    with pytest.raises(OneInputError) as refused:
        backend.tokenize(["short", long], Options(query=QUERY, truncate="no"))
    assert refused.value.index == 1
    assert isinstance(refused.value.cause, InputTooLongError)
    assert refused.value.cause.too_long.max_tokens == backend.max_input_tokens
    swapped = backend.tokenize(["short"], Options(query=long))[0]
    assert swapped.truncated


@pytest.mark.parametrize("side", ["right", "left"])
def test_two_long_texts_are_cut_as_by_the_library(reranker: Path, side: Literal["right", "left"]) -> None:
    """Ids and types are the library's at all lengths around the limits; so is whether tokens were cut off."""
    backend = load(reranker)
    tokenizer = AutoTokenizer.from_pretrained(reranker, truncation_side=side)
    longest = backend.max_input_tokens
    middle, around = longest // 2, (-3, -2, -1, 0, 1, 2)
    lengths = [0, 1, *(middle + i for i in around), *(longest + i for i in around), 2 * longest, 2 * longest + 1]
    documents = [" ".join(f"{number}" for number in range(length)) for length in lengths]
    for length in lengths:
        query = "a " * length
        found = backend.tokenize(documents, Options(query=query, truncate=side))
        expected = tokenizer([query] * len(documents), documents, truncation=True, max_length=longest)
        whole = tokenizer([query] * len(documents), documents)["input_ids"]
        assert [each.ids for each in found] == expected["input_ids"]  # type: ignore[attr-defined]
        assert [each.type_ids for each in found] == expected["token_type_ids"]  # type: ignore[attr-defined]
        assert [each.truncated for each in found] == [len(ids) > longest for ids in whole]


@pytest.mark.long
@pytest.mark.parametrize(("num_documents", "document"), [(1, "b " * 15_360), (256, "b")], ids=["two long", "query"])
def test_long_pairs_take_little_memory(reranker: Path, num_documents: int, document: str) -> None:
    """Neither combinations of the parts of two long texts, nor a long query for each document, of over 500 MB."""
    arguments = [str(reranker), str(num_documents), document]
    module = "tests.unit.gpuworker.backends.pair_memory"
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 100_000


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_texts_of_a_pair_may_be_cut(reranker: Path, side: Literal["right", "left"]) -> None:
    """Query and documents to their own numbers of tokens, or the pair to one: as by hand with the library."""
    backend, tokenizer = load(reranker), AutoTokenizer.from_pretrained(reranker, truncation_side=side)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id

    def cut(text: str, length: int) -> list[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids[-length:] if side == "left" else ids[:length]

    wholes = [tokenizer(QUERY, each)["input_ids"] for each in TEXTS]
    for query_length, document_length in ((3, 5), (3, 100), (100, 2), (100, 100)):
        options = Options(
            truncate=side, query=QUERY, max_query_tokens=query_length, max_document_tokens=document_length
        )
        for text, whole, found in zip(TEXTS, wholes, backend.tokenize(TEXTS, options), strict=True):
            query, document = cut(QUERY, query_length), cut(text, document_length)
            assert found.ids == [cls, *query, sep, *document, sep]  # type: ignore[attr-defined]
            assert list(found.type_ids) == [0] * (len(query) + 2) + [1] * (len(document) + 1)  # type: ignore[attr-defined]
            assert found.truncated is (len(found.ids) < len(whole))  # type: ignore[attr-defined]
    for length in (4, 5, 9, 12, 100):
        pairs = tokenizer([QUERY] * len(TEXTS), TEXTS, truncation=True, max_length=length)["input_ids"]
        tokenized = backend.tokenize(TEXTS, Options(truncate=side, query=QUERY, max_tokens=length))
        assert [each.ids for each in tokenized] == pairs  # type: ignore[attr-defined]
        assert [each.truncated for each in tokenized] == [len(each) > length for each in wholes]
    with pytest.raises(InputRefusedError, match="allow at least 4 tokens"):
        backend.tokenize(TEXTS, Options(query=QUERY, max_tokens=3))


def test_fewer_tokens_than_the_model_reads_give_the_logits_of_predict(reranker: Path) -> None:
    """Which has a maximum length too; a higher one than the model's changes nothing."""
    backend = load(reranker)
    pairs = [(QUERY, each) for each in TEXTS]
    expected = CrossEncoder(str(reranker), max_length=12).predict(pairs, activation_fn=Identity())
    found = logits_of(backend, TEXTS, Options(query=QUERY, max_tokens=12))
    assert np.abs(found[:, 0] - expected).max() <= 1e-5
    whole = expected_of(reranker, TEXTS)
    assert np.abs(logits_of(backend, TEXTS, Options(query=QUERY, max_tokens=10_000)) - whole).max() <= 1e-5
    assert np.abs(found - whole).max() > 1e-3


def test_a_model_without_a_template_takes_no_instruction(reranker: Path) -> None:
    """It would read one as a part of the query."""
    with pytest.raises(InputRefusedError, match="this model has none"):
        load(reranker).tokenize(["a"], Options(query=QUERY, instruction="Find animals."))


def test_a_pair_has_no_token_ids(reranker: Path) -> None:
    """The special tokens between the two texts are the tokenizer's."""
    with pytest.raises(InputRefusedError, match="Send texts"):
        load(reranker).tokenize([encode_ids([101])], Options(query=QUERY))


def test_a_default_prompt_goes_before_the_query(tmp_path: Path, reranker: Path) -> None:
    """As in `predict`."""
    CrossEncoder(str(reranker), prompts={"ask": "Query: "}, default_prompt_name="ask").save_pretrained(str(tmp_path))
    backend = load(tmp_path)
    assert backend.prompts == ["ask"]
    prompted = logits_of(backend, TEXTS, Options(query=QUERY))
    assert np.abs(prompted - expected_of(tmp_path, TEXTS)).max() <= 1e-5
    plain = logits_of(backend, TEXTS, Options(query=QUERY, prompt_name=""))
    assert np.abs(plain - expected_of(reranker, TEXTS)).max() <= 1e-5
    assert np.abs(plain - prompted).max() > 1e-3


def test_another_runtime_is_refused(reranker: Path) -> None:
    """It runs models of embeddings."""
    with pytest.raises(ModelLoadError, match="use --backend torch"):
        load(reranker, replace(OPTIONS, backend="onnx"))


@pytest.mark.parametrize("with_modules", [False, True])
def test_a_language_model_with_a_template_is_a_reranker(tmp_path: Path, *, with_modules: bool) -> None:
    """It has the logits of `predict`, with left padding and its template, also with a prompt for some pairs."""
    folder = build_language_model_reranker(tmp_path / "plain")
    if with_modules:
        model = CrossEncoder(str(folder), prompts={"ask": "Is it about animals?"})
        model.save_pretrained(str(tmp_path / "saved"))
        folder = tmp_path / "saved"
    backend = load(folder)
    assert (backend.ops, backend.dim, backend.runners, backend.packs) == (
        frozenset({SCORE, CLASSIFY}),
        1,
        1,
        False,
    )
    backend.warmup()
    expected = expected_of(folder, TEXTS)
    assert expected.std() > 0.01, "the scores are too much alike for a comparison"
    assert np.abs(logits_of(backend, TEXTS, Options(query=QUERY)) - expected).max() <= 1e-5
    if with_modules:
        pairs = [(QUERY, each) for each in TEXTS]
        prompted = CrossEncoder(str(folder)).predict(pairs, prompt_name="ask", activation_fn=Identity())
        mixed = [
            *backend.tokenize(TEXTS, Options(query=QUERY)),
            *backend.tokenize(TEXTS, Options(query=QUERY, prompt_name="ask")),
        ]
        found = np.asarray(backend.run(backend.collate(mixed), SCORE, exclusive=False))[:, 0]
        assert np.abs(found - [*expected[:, 0], *prompted]).max() <= 1e-5
    for options in (Options(), Options(query=QUERY, truncate="left"), Options(query=QUERY, max_tokens=9)):
        with pytest.raises(InputRefusedError, match="This model"):
            backend.tokenize(["a"], options)
    with pytest.raises(InputRefusedError, match="shows no tokens"):
        backend.show_tokens(["a"], Options())


@pytest.mark.parametrize("max_length", [None, 40], ids=["of the tokenizer", "of the files"])
def test_a_language_model_says_which_pairs_it_cuts(tmp_path: Path, max_length: int | None) -> None:
    """By the tokens of the rendered template, as the library cuts it; or it refuses them, if they must be whole."""
    folder = build_language_model_reranker(tmp_path / "plain")
    if max_length is not None:
        model = CrossEncoder(str(folder))
        model[0].processing_kwargs = {"text": {"max_length": max_length}}
        model.save_pretrained(str(tmp_path / "saved"))
        folder = tmp_path / "saved"
    backend, model = load(folder), CrossEncoder(str(folder))
    longest = max_length or 512
    assert backend.max_input_tokens == longest
    for task in (None, "Is it about animals?"):
        around = longest - len(model.preprocess([(QUERY, "")], prompt=task)["input_ids"][0])
        texts = ["", "dog", *("dog " * (around + more) for more in (-1, 0, 1, 2, 700))]
        read = backend.tokenize(texts, Options(query=QUERY, instruction=task))
        cut = model.preprocess([(QUERY, each) for each in texts], prompt=task)["attention_mask"].sum(1).tolist()
        assert [each.tokens for each in read] == cut
        assert [each.truncated for each in read] == [False] * 4 + [True] * 3
        whole = Options(query=QUERY, instruction=task, truncate="no")
        assert [each.tokens for each in backend.tokenize(texts[:4], whole)] == cut[:4]
        with pytest.raises(OneInputError) as refused:
            backend.tokenize(texts, whole)
        assert refused.value.index == 4
        assert isinstance(refused.value.cause, InputTooLongError)
        assert refused.value.cause.too_long == (longest + 1, longest)


def test_an_instruction_is_the_prompt_of_a_template(tmp_path: Path) -> None:
    """As `predict` has it; with another one, or without any in the same batch, a pair has other scores."""
    folder = build_language_model_reranker(tmp_path)
    backend, model = load(folder), CrossEncoder(str(folder))
    pairs, tasks = [(QUERY, each) for each in TEXTS], (None, "Is it about animals?", "Is it about cars?")
    expected = [model.predict(pairs, prompt=task, activation_fn=Identity()) for task in tasks]
    assert min(np.abs(expected[i] - expected[j]).max() for i, j in ((0, 1), (0, 2), (1, 2))) > 1e-3
    mixed = [each for task in tasks for each in backend.tokenize(TEXTS, Options(query=QUERY, instruction=task))]
    found = np.asarray(backend.run(backend.collate(mixed), SCORE, exclusive=False))[:, 0]
    assert np.abs(found - np.concatenate(expected)).max() <= 1e-5
    with pytest.raises(InputRefusedError, match="not both"):
        backend.tokenize(["a"], Options(prompt_name="", query=QUERY, instruction="a"))


def test_texts_of_a_template_are_cut_before_it_is_applied(tmp_path: Path) -> None:
    """After the last character of the last token that is read."""
    folder = build_language_model_reranker(tmp_path)
    backend, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)

    def cut(text: str, length: int) -> str:
        offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return text[: offsets[length - 1][1]] if len(offsets) > length else text

    options = Options(query=QUERY, max_query_tokens=3, max_document_tokens=4)
    expected = expected_of(folder, [cut(each, 4) for each in TEXTS], cut(QUERY, 3))
    assert np.abs(logits_of(backend, TEXTS, options) - expected).max() <= 1e-5
    options = options._replace(max_query_tokens=None)
    truncated = [each.truncated for each in backend.tokenize(TEXTS, options)]
    assert truncated == [cut(each, 4) != each for each in TEXTS]


def test_a_template_without_a_place_for_an_instruction(tmp_path: Path) -> None:
    """Nothing would change: so it is an error."""
    template = TEMPLATE.replace("{% if m.role == 'system' %}{{ m.content }} {% elif", "{% if")
    folder = build_language_model_reranker(tmp_path, template)
    with pytest.raises(InputRefusedError, match="no place for one"):
        load(folder).tokenize(["a"], Options(query=QUERY, instruction="a"))
