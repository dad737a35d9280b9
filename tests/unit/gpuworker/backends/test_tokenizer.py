"""Texts and token ids as the bundled model reads them, beside what `encode` makes of the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from gpuworker.backends.base import InputRefusedError
from gpuworker.backends.sentence import SentenceBackend
from gpuworker.backends.simulated import SimulatedBackend
from gpuworker.models import parse_model
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
    """The backend of it."""
    return SentenceBackend(parse_model(str(folder)), replace(OPTIONS, prepack=False))


@pytest.fixture(scope="module")
def model(folder: Path) -> SentenceTransformer:
    """The same model, as its users have it."""
    return SentenceTransformer(str(folder), device="cpu")


def vectors(backend: SentenceBackend, inputs: Sequence[Input], options: Options) -> NDArray[np.float32]:
    """Returns the vectors of some inputs."""
    return np.asarray(backend.run(backend.collate(backend.tokenize(inputs, options)), exclusive=True))


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_a_prompt_goes_before_each_text(backend: SentenceBackend, model: SentenceTransformer, name: str) -> None:
    """As encode(prompt_name=...) puts it."""
    texts = ["a fox", "two dogs", LONG]
    found = vectors(backend, texts, Options(prompt_name=name))
    assert np.abs(found - model.encode(texts, prompt_name=name)).max() <= 1e-5
    assert np.abs(found - model.encode(texts)).max() > 1e-3


def test_a_prompt_that_the_model_does_not_have(backend: SentenceBackend) -> None:
    """The message names those that it has."""
    with pytest.raises(InputRefusedError, match="document, query"):
        backend.tokenize(["a"], Options(prompt_name="no such"))


def test_token_ids_are_taken_as_they_are(backend: SentenceBackend, model: SentenceTransformer) -> None:
    """Those of a text, special tokens and all, give the vector of the text; beside texts too."""
    texts = ["a fox", "two dogs and a cat"]
    ids = [encode_ids(model.tokenizer(text)["input_ids"]) for text in texts]
    expected = model.encode(texts)
    assert np.abs(vectors(backend, ids, Options()) - expected).max() <= 1e-5
    assert np.abs(vectors(backend, [texts[0], ids[1]], Options()) - expected).max() <= 1e-5


@pytest.mark.parametrize("id_", [30_522, 2**32 - 1])
def test_a_token_that_the_model_does_not_have(backend: SentenceBackend, id_: int) -> None:
    """It is refused, before it could index anything."""
    with pytest.raises(InputRefusedError, match="below 30522"):
        backend.tokenize([encode_ids([101, id_])], Options())


def test_the_last_token_of_the_vocabulary_is_one(backend: SentenceBackend) -> None:
    """The bound is exact."""
    assert backend.tokenize([encode_ids([30_521])], Options())[0].tokens == 1


def test_token_ids_have_no_prompt(backend: SentenceBackend) -> None:
    """A text cannot go before them."""
    with pytest.raises(InputRefusedError, match="not before token ids"):
        backend.tokenize([encode_ids([101, 102])], Options(prompt_name="query"))


def test_what_is_too_long_is_cut_at_the_end_that_is_named(backend: SentenceBackend, model: SentenceTransformer) -> None:
    """Its beginning is kept, or its end; the special tokens stay."""
    ids = model.tokenizer(LONG, truncation=False)["input_ids"]
    [right], [left] = (backend.tokenize([LONG], Options(truncate=cut)) for cut in ("right", "left"))
    assert right.ids == [*ids[: LONGEST - 1], ids[-1]]  # type: ignore[union-attr]
    assert left.ids == [ids[0], *ids[-(LONGEST - 1) :]]  # type: ignore[union-attr]
    given = encode_ids(ids)
    [right], [left] = (backend.tokenize([given], Options(truncate=cut)) for cut in ("right", "left"))
    assert (right.ids, left.ids) == (ids[:LONGEST], ids[-LONGEST:])  # type: ignore[union-attr]


@pytest.mark.parametrize("given", [LONG, encode_ids([1_000] * 257)], ids=["text", "ids"])
def test_what_is_too_long_may_be_refused(backend: SentenceBackend, given: Input) -> None:
    """The message says how long it is, and how long it may be."""
    with pytest.raises(InputRefusedError, match=r"\d+ tokens, and this model takes 256"):
        backend.tokenize(["short", given], Options(truncate="no"))
    assert backend.tokenize(["short"], Options(truncate="no"))[0].tokens == len(["[CLS]", "short", "[SEP]"])


def test_raw_vectors_have_their_own_length(backend: SentenceBackend, model: SentenceTransformer) -> None:
    """They point where the model's own do."""
    texts = ["a fox", "two dogs and a cat"]
    encoded = backend.tokenize(texts)
    raw = backend.run(backend.collate(encoded), exclusive=True, raw=True)
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert backend.normalizes
    assert np.abs(lengths - 1).min() > 0.01
    assert np.abs(raw / lengths - model.encode(texts)).max() <= 1e-5


def test_the_null_model_has_no_prompts() -> None:
    """It says so; token ids it hashes as any bytes."""
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
    """Uncut; where they are is counted in bytes of UTF-8, of which those bytes are the token's text."""
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
    """It stands nowhere in the text."""
    [shown] = backend.show_tokens(["fox"], Options())
    assert [each["text"] for each in shown] == ["[CLS]", "fox", "[SEP]"]


def test_token_ids_make_a_text(backend: SentenceBackend, model: SentenceTransformer) -> None:
    """With the special ones, or without them; many at once."""
    ids = [model.tokenizer(text)["input_ids"] for text in ("a fox", "two dogs")]
    given = [encode_ids(each) for each in ids]
    assert backend.decode(given, Options(special_tokens=False)) == ["a fox", "two dogs"]
    assert backend.decode(given[:1], Options(special_tokens=True)) == ["[CLS] a fox [SEP]"]


def test_what_is_no_text_has_no_tokens_to_show_and_the_reverse(backend: SentenceBackend) -> None:
    """Nor is there a token beyond the vocabulary, or a prompt that the model does not have."""
    with pytest.raises(InputRefusedError):
        backend.show_tokens([encode_ids([1])], Options())
    with pytest.raises(InputRefusedError):
        backend.show_tokens(["a"], Options("missing"))
    with pytest.raises(InputRefusedError):
        backend.decode(["a"], Options())
    with pytest.raises(InputRefusedError, match="below 30522"):
        backend.decode([encode_ids([30_522])], Options())


def test_the_null_model_has_no_tokenizer() -> None:
    """It says so."""
    null = SimulatedBackend(parse_model("null"))
    with pytest.raises(InputRefusedError, match="no tokenizer"):
        null.show_tokens(["a"], Options())
    with pytest.raises(InputRefusedError, match="no tokenizer"):
        null.decode([encode_ids([1])], Options())
