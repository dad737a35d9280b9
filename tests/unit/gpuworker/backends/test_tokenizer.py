"""Texts and token ids as the bundled model reads them, compared with `encode`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from gpuworker.backends.base import InputRefusedError, OneInputError
from gpuworker.backends.sentence import SentenceBackend
from gpuworker.backends.simulated import SimulatedBackend
from gpuworker.model_spec import parse_model
from shared.codec import encode_ids
from shared.messages import Input, Options
from tests.unit.gpuworker.backends.options import OPTIONS

pytestmark = pytest.mark.model

PROMPTS = {"query": "search_query: ", "document": "search_document: "}
LONG = " ".join(f"word{i}" for i in range(600))
LONGEST = 256


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM with prompts."""
    path = tmp_path_factory.mktemp("prompted")
    SentenceTransformer(parse_model("minilm").path, prompts=PROMPTS).save(str(path))
    return path


@pytest.fixture(scope="module")
def backend(folder: Path) -> SentenceBackend:
    """The backend of that model."""
    return SentenceBackend(parse_model(str(folder)), replace(OPTIONS, prepack=False))


@pytest.fixture(scope="module")
def model(folder: Path) -> SentenceTransformer:
    """The same model in sentence-transformers."""
    return SentenceTransformer(str(folder), device="cpu")


def vectors(backend: SentenceBackend, inputs: Sequence[Input], options: Options) -> NDArray[np.float32]:
    """Returns the vectors of some inputs."""
    return np.asarray(backend.run(backend.collate(backend.tokenize(inputs, options)), exclusive=True))


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_a_prompt_goes_before_each_text(backend: SentenceBackend, model: SentenceTransformer, name: str) -> None:
    """The vectors are those of encode(prompt_name=...)."""
    texts = ["a fox", "two dogs", LONG]
    found = vectors(backend, texts, Options(prompt_name=name))
    assert np.abs(found - model.encode(texts, prompt_name=name)).max() <= 1e-5
    assert np.abs(found - model.encode(texts)).max() > 1e-3


def test_a_prompt_that_the_model_does_not_have_is_refused(backend: SentenceBackend) -> None:
    """The error names the prompts that it has."""
    with pytest.raises(InputRefusedError, match="document, query"):
        backend.tokenize(["a"], Options(prompt_name="no such"))


def test_token_ids_are_taken_as_they_are(backend: SentenceBackend, model: SentenceTransformer) -> None:
    """The ids of a text, special tokens included, give the vector of the text, also in a batch with texts."""
    texts = ["a fox", "two dogs and a cat"]
    ids = [encode_ids(model.tokenizer(text)["input_ids"]) for text in texts]
    expected = model.encode(texts)
    assert np.abs(vectors(backend, ids, Options()) - expected).max() <= 1e-5
    assert np.abs(vectors(backend, [texts[0], ids[1]], Options()) - expected).max() <= 1e-5


@pytest.mark.parametrize("id_", [30_522, 2**32 - 1])
def test_a_token_id_beyond_the_vocabulary_is_refused(backend: SentenceBackend, id_: int) -> None:
    """The error comes before the id indexes a table."""
    with pytest.raises(OneInputError, match="below 30522"):
        backend.tokenize([encode_ids([101, id_])], Options())


def test_the_last_token_of_the_vocabulary_is_accepted(backend: SentenceBackend) -> None:
    """The limit is exact."""
    assert backend.tokenize([encode_ids([30_521])], Options())[0].tokens == 1


def test_token_ids_with_a_prompt_are_refused(backend: SentenceBackend) -> None:
    """A text cannot be put before token ids."""
    with pytest.raises(InputRefusedError, match="not before token ids"):
        backend.tokenize([encode_ids([101, 102])], Options(prompt_name="query"))


def test_an_input_that_is_too_long_is_cut_at_the_side_of_the_option(
    backend: SentenceBackend, model: SentenceTransformer
) -> None:
    """Its beginning stays, or its end; the special tokens of a text stay."""
    ids = model.tokenizer(LONG, truncation=False)["input_ids"]
    [right], [left] = (backend.tokenize([LONG], Options(truncate=cut)) for cut in ("right", "left"))
    assert right.ids == [*ids[: LONGEST - 1], ids[-1]]  # type: ignore[attr-defined]
    assert left.ids == [ids[0], *ids[-(LONGEST - 1) :]]  # type: ignore[attr-defined]
    data = encode_ids(ids)
    [right], [left] = (backend.tokenize([data], Options(truncate=cut)) for cut in ("right", "left"))
    assert (right.ids, left.ids) == (ids[:LONGEST], ids[-LONGEST:])  # type: ignore[attr-defined]


@pytest.mark.parametrize("cut", ["right", "left"])
def test_an_input_knows_whether_it_was_cut(backend: SentenceBackend, cut: Literal["right", "left"]) -> None:
    """A text and token ids of exactly the maximum length are whole; those of one token more are not."""
    texts = ["a " * (LONGEST - 2), "a " * (LONGEST - 1), "a", LONG]
    inputs: list[Input] = [*texts, encode_ids([1_000] * LONGEST), encode_ids([1_000] * (LONGEST + 1))]
    for given, expected in ((texts, [False, True, False, True]), (inputs, [False, True, False, True, False, True])):
        tokenized = backend.tokenize(given, Options(truncate=cut))
        assert [each.truncated for each in tokenized] == expected
        assert max(each.tokens for each in tokenized) == LONGEST


@pytest.mark.parametrize("cut", ["right", "left"])
def test_an_input_may_be_cut_to_fewer_tokens(
    backend: SentenceBackend, model: SentenceTransformer, cut: Literal["right", "left"]
) -> None:
    """Than the model reads, special tokens included; other inputs are cut as before."""
    ids = model.tokenizer(LONG, truncation=False)["input_ids"]
    [text, data, short] = backend.tokenize([LONG, encode_ids(ids), "short"], Options(truncate=cut, max_tokens=9))
    expected = [*ids[:8], ids[-1]] if cut == "right" else [ids[0], *ids[-8:]]
    assert (text.ids, data.ids) == (expected, ids[:9] if cut == "right" else ids[-9:])  # type: ignore[attr-defined]
    assert [each.truncated for each in (text, data, short)] == [True, True, False]
    assert backend.tokenize([LONG], Options(truncate=cut))[0].tokens == LONGEST
    with pytest.raises(InputRefusedError, match="adds 2 special tokens: allow at least 3"):
        backend.tokenize([LONG], Options(truncate=cut, max_tokens=2))


@pytest.mark.parametrize("data", [LONG, encode_ids([1_000] * 257)], ids=["text", "ids"])
def test_an_input_that_is_too_long_may_be_refused(backend: SentenceBackend, data: Input) -> None:
    """The error says how long it is, and how long it may be, and knows its index."""
    with pytest.raises(OneInputError, match=r"\d+ tokens, and the maximum is 256") as caught:
        backend.tokenize(["short", data], Options(truncate="no"))
    assert caught.value.index == 1
    assert backend.tokenize(["short"], Options(truncate="no"))[0].tokens == len(["[CLS]", "short", "[SEP]"])


def test_raw_vectors_are_not_normalized(backend: SentenceBackend, model: SentenceTransformer) -> None:
    """They have the direction of the model's vectors."""
    texts = ["a fox", "two dogs and a cat"]
    encoded = backend.tokenize(texts)
    raw = backend.run(backend.collate(encoded), exclusive=True, raw=True)
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert backend.normalizes
    assert np.abs(lengths - 1).min() > 0.01
    assert np.abs(raw / lengths - model.encode(texts)).max() <= 1e-5


def test_the_null_model_has_no_prompts() -> None:
    """It refuses them; it hashes token ids like any bytes."""
    null = SimulatedBackend(parse_model("null"))
    with pytest.raises(InputRefusedError, match="no prompts"):
        null.tokenize(["a"], Options(prompt_name="query"))
    assert len(null.tokenize([encode_ids([1]), "a"])) == 2


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("name", [None, "query"])
@pytest.mark.parametrize("text", ["A fox, unbelievably", "Ünïcödé 漢字 \U0001f98a", LONG])
def test_tokens_are_shown_as_the_tokenizer_makes_them(
    backend: SentenceBackend, model: SentenceTransformer, text: str, name: str | None, special: bool
) -> None:
    """They are not cut; their offsets are bytes of the UTF-8 text, and these bytes are the token's text."""
    options = Options(name, special_tokens=special)
    [shown] = backend.show_tokens([text], options)
    whole = PROMPTS.get(name or "", "") + text
    assert [each["id"] for each in shown] == model.tokenizer(whole, add_special_tokens=special)["input_ids"]
    plain = [each for each in shown if not each["special"]]
    assert len(shown) - len(plain) == 2 * special
    for each in plain:
        assert whole.encode()[each["start"] : each["stop"]].decode() == each["text"]
    assert all((each["start"], each["stop"]) == (None, None) for each in shown if each["special"])


def test_a_special_token_is_shown_by_its_name(backend: SentenceBackend) -> None:
    """It has its name as text."""
    [shown] = backend.show_tokens(["fox"], Options())
    assert [each["text"] for each in shown] == ["[CLS]", "fox", "[SEP]"]


def test_token_ids_make_a_text(backend: SentenceBackend, model: SentenceTransformer) -> None:
    """The text is with the special tokens, or without them; several inputs are decoded at once."""
    ids = [model.tokenizer(text)["input_ids"] for text in ("a fox", "two dogs")]
    data = [encode_ids(each) for each in ids]
    assert backend.decode(data, Options(special_tokens=False)) == ["a fox", "two dogs"]
    assert backend.decode(data[:1], Options(special_tokens=True)) == ["[CLS] a fox [SEP]"]


def test_inputs_of_the_wrong_kind_are_refused(backend: SentenceBackend) -> None:
    """So are a token id beyond the vocabulary, and a prompt that the model does not have."""
    with pytest.raises(InputRefusedError):
        backend.show_tokens([encode_ids([1])], Options())
    with pytest.raises(InputRefusedError):
        backend.show_tokens(["a"], Options("missing"))
    with pytest.raises(InputRefusedError):
        backend.decode(["a"], Options())
    with pytest.raises(OneInputError, match="below 30522") as caught:
        backend.decode([encode_ids([1]), encode_ids([30_522])], Options())
    assert caught.value.index == 1


def test_the_null_model_has_no_tokenizer() -> None:
    """It refuses both tokenizer operations."""
    null = SimulatedBackend(parse_model("null"))
    with pytest.raises(InputRefusedError, match="no tokenizer"):
        null.show_tokens(["a"], Options())
    with pytest.raises(InputRefusedError, match="no tokenizer"):
        null.decode([encode_ids([1])], Options())
