"""Every backend of text models returns the vectors of `encode`, within the precision of its format."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from gpuworker.backends.base import Backend, OneInputError
from gpuworker.backends.selection import load_backend
from gpuworker.model_spec import parse_model
from shared.codec import encode_ids
from shared.messages import DEFAULT_OPTIONS, EMBED, EMBED_ALL, Input, Options
from tests.unit.gpuworker.backends.options import OPTIONS

pytestmark = pytest.mark.model

TEXTS = [
    "",
    "hello",
    "A longer text, of more words than the first one has.",
    "Ünïcödé 漢字 🙂",
    "hello",
    "one two three four five " * 20,
    "x " * 700,
]


@dataclass(frozen=True)
class Kind:
    """A backend and its format, and the largest difference from `encode` of a number of a vector of length 1."""

    backend: str
    dtype: str
    tolerance: float
    compile: bool = False
    shape_buckets: str = "off"
    device: str = "cpu"

    def __str__(self) -> str:
        """Returns its name as a parameter."""
        compiled, buckets = "-compiled" * self.compile, "-buckets" * (self.shape_buckets == "on")
        return f"{self.backend}-{self.dtype}{compiled}{buckets}{'-cuda' * (self.device == 'cuda')}"


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU")
# torch's own, when it begins to record graphs: it records an empty one first, on purpose.
empty_graph = pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")

KINDS = [
    Kind("torch", "float32", 1e-5),
    Kind("torch", "bfloat16", 1e-2),
    Kind("torch", "float32", 1e-5, shape_buckets="on"),
    pytest.param(Kind("torch", "float32", 1e-5, compile=True), marks=[pytest.mark.slow, pytest.mark.long]),
    Kind("onnx", "float32", 1e-5),
    Kind("openvino", "float32", 1e-5),
    Kind("openvino", "bfloat16", 1e-2),
    pytest.param(Kind("torch", "float32", 1e-4, device="cuda"), marks=needs_gpu),
    pytest.param(Kind("torch", "bfloat16", 1e-2, device="cuda"), marks=needs_gpu),
    pytest.param(Kind("torch", "bfloat16", 1e-2, compile=True, device="cuda"), marks=[needs_gpu, empty_graph]),
]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind, one after the other."""
    param: Kind = request.param
    return param


@pytest.fixture(scope="module")
def backend(kind: Kind, graphs: Path) -> Backend:
    """A loaded backend."""
    if kind.compile and shutil.which("c++") is None:
        pytest.skip("torch compiles for a CPU with a C++ compiler, and there is none")
    options = asdict(kind)
    del options["tolerance"]
    return load_backend(parse_model("minilm"), replace(OPTIONS, **options))


@pytest.fixture(scope="module")
def expected() -> NDArray[np.float32]:
    """The vectors of `encode` for each text in a batch of one."""
    model = SentenceTransformer(parse_model("minilm").path, device="cpu")
    return np.stack([model.encode([text])[0] for text in TEXTS])


def vectors(backend: Backend, texts: list[Input], *, exclusive: bool = False, raw: bool = False) -> NDArray[np.float32]:
    """Returns the vectors of some texts, run as one batch."""
    found = np.asarray(backend.run(backend.collate(backend.tokenize(texts)), EMBED, exclusive=exclusive, raw=raw))
    assert found.dtype == np.float32
    assert found.shape == (len(texts), backend.dim)
    return found


@pytest.mark.parametrize("exclusive", [True, False])
def test_vectors_are_those_of_encode(
    backend: Backend, kind: Kind, expected: NDArray[np.float32], exclusive: bool
) -> None:
    """That holds in a batch of texts of all lengths, on one core or on all cores."""
    assert np.abs(vectors(backend, [*TEXTS], exclusive=exclusive) - expected).max() <= kind.tolerance


def test_a_vector_does_not_depend_on_its_batch(backend: Backend, kind: Kind, expected: NDArray[np.float32]) -> None:
    """Nor on its place in it: each order of three texts of three lengths gives the vectors of each text alone."""
    for order in permutations(range(1, 4)):
        found = vectors(backend, [TEXTS[i] for i in order])
        assert np.abs(found - expected[list(order)]).max() <= kind.tolerance
    for i in range(1, 4):
        assert np.abs(vectors(backend, [TEXTS[i]])[0] - expected[i]).max() <= kind.tolerance


def test_a_vector_does_not_depend_on_the_size_of_its_batch(
    backend: Backend, kind: Kind, expected: NDArray[np.float32]
) -> None:
    """A text has the same vector in batches of many sizes."""
    for number in (1, 2, 3, 5, 7, 8, 9, 33):
        found = vectors(backend, [TEXTS[2]] * number)
        assert np.abs(found - expected[2]).max() <= kind.tolerance


def test_batches_may_run_at_once(backend: Backend, kind: Kind, expected: NDArray[np.float32]) -> None:
    """Batches from several threads each get their own vectors."""
    if kind.compile and kind.device == "cuda":
        pytest.skip("a compiled model on a GPU has one runner: graphs of torch 2.11 are those of one thread")
    batches = [[i, (i + 1) % len(TEXTS)] for i in range(len(TEXTS))] * 4
    with ThreadPoolExecutor(2) as pool:
        for batch, found in zip(
            batches, pool.map(lambda batch: vectors(backend, [TEXTS[i] for i in batch]), batches), strict=True
        ):
            assert np.abs(found - expected[batch]).max() <= kind.tolerance


def test_the_same_batch_has_the_same_vectors_again(backend: Backend, kind: Kind) -> None:
    """All bits are equal if the same batch runs twice in the same engine.

    A GPU adds the tokens of a text in any order, which is a rounding: 7.5e-9 was seen. A larger difference would be
    that of memory used too early.
    """
    difference = np.abs(vectors(backend, [*TEXTS]) - vectors(backend, [*TEXTS])).max(axis=1)
    largest = 1e-7 if kind.device == "cuda" else 0
    assert difference.max() <= largest, f"the largest differences of each text: {difference.tolist()}"


def test_vectors_are_not_overwritten(backend: Backend) -> None:
    """A vector does not change when the next batch runs."""
    first = vectors(backend, [TEXTS[1]])
    copy = first.copy()
    vectors(backend, [TEXTS[5]])
    assert np.array_equal(first, copy)


def test_token_ids_are_inputs_like_texts(backend: Backend, kind: Kind, expected: NDArray[np.float32]) -> None:
    """The token ids of a text have the vector of the text; ids beyond the vocabulary are refused."""
    ids = [token["id"] for token in backend.show_tokens([TEXTS[2]], DEFAULT_OPTIONS)[0]]
    assert np.abs(vectors(backend, [encode_ids(ids)])[0] - expected[2]).max() <= kind.tolerance
    with pytest.raises(OneInputError, match="Token ids of this model are below") as caught:
        backend.tokenize([encode_ids(ids), encode_ids([10**6])])
    assert caught.value.index == 1


def test_each_token_has_a_vector(backend: Backend, kind: Kind, expected: NDArray[np.float32]) -> None:
    """An input has one vector for each token; their mean has the direction of the text's vector."""
    texts: list[Input] = [TEXTS[5], TEXTS[1], TEXTS[2]]
    tokenized = backend.tokenize(texts)
    found = backend.run(backend.collate(tokenized), EMBED_ALL, exclusive=True)
    for each, encoded, at in zip(found, tokenized, (5, 1, 2), strict=True):
        assert np.shape(each) == (encoded.tokens, backend.dim)
        mean = np.asarray(each).mean(axis=0)
        assert np.abs(mean / np.linalg.norm(mean) - expected[at]).max() <= kind.tolerance


def test_raw_vectors_are_not_normalized(backend: Backend, kind: Kind, expected: NDArray[np.float32]) -> None:
    """They have the direction of the normalized vectors."""
    raw = vectors(backend, [*TEXTS], raw=True)
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert backend.normalizes
    assert lengths.max() > 1.5
    assert np.abs(raw / lengths - expected).max() <= kind.tolerance


def test_long_texts_are_cut_as_encode_cuts_them(backend: Backend) -> None:
    """They are cut to the model's maximum; or refused, if they must not be cut."""
    assert backend.tokenize([TEXTS[6]])[0].tokens == backend.max_input_tokens == 256
    with pytest.raises(OneInputError, match="shorten it"):
        backend.tokenize([TEXTS[6]], Options(truncate="no"))


def test_a_backend_describes_itself(backend: Backend, kind: Kind) -> None:
    """Backends whose vectors differ have different revisions; only a GPU has a clock."""
    plain = load_backend(parse_model("minilm"), OPTIONS)
    same = (kind.backend, kind.dtype, kind.device) == ("torch", "float32", "cpu")
    assert (backend.device.partition(":")[0], backend.dtype, backend.pooling) == (kind.device, kind.dtype, "mean")
    assert (backend.revision == plain.revision) == same
    backend.warmup()
    assert backend.busy_s() == 0.0
    vectors(backend, [TEXTS[1]])
    assert (backend.busy_s() > 0) == (kind.device == "cuda")
