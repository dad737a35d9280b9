"""Hybrid models: each part is that of FlagEmbedding's definition, whatever else a batch returns."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from gpuworker.backends.base import TextParts
from gpuworker.backends.hybrid_encoder import HybridBackend
from gpuworker.backends.selection import load_backend
from gpuworker.backends.token_heads import load_heads
from gpuworker.model_files import find_in
from gpuworker.model_spec import ModelLoadError, ops_of, parse_model
from shared.messages import (
    DENSE,
    EMBED,
    EMBED_ALL,
    EMBED_PARTS,
    EMBED_SPARSE,
    MULTI_VECTOR,
    PARTS,
    SPARSE,
    TEXT_OPS,
    Options,
)
from tests.hybrid_models import SIZE, assert_parts, build_hybrid_model, reference
from tests.unit.gpuworker.backends.options import OPTIONS

pytestmark = pytest.mark.model

TEXTS = ["a", "hello world", "to be, or not to be", "Ünïcödé 漢字 🙂", "aaaa", "one two three " * 30, "b c d"]
WANTED = [{DENSE}, {SPARSE}, {MULTI_VECTOR}, set(PARTS), {DENSE, SPARSE}, {SPARSE, MULTI_VECTOR}, {DENSE, MULTI_VECTOR}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model."""
    return build_hybrid_model(tmp_path_factory.mktemp("hybrid"))


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[dict[str, Any]]:
    """The parts of each text."""
    return [reference(folder, text) for text in TEXTS]


def load(folder: Path, **options: Any) -> HybridBackend:  # noqa: ANN401
    """Returns a loaded backend."""
    backend = load_backend(parse_model(str(folder)), replace(OPTIONS, **options))
    assert isinstance(backend, HybridBackend)
    return backend


@pytest.fixture(scope="module", params=["packed", "padded"])
def backend(folder: Path, request: pytest.FixtureRequest) -> HybridBackend:
    """A loaded backend; with shapes, batches are padded."""
    backend = load(folder, shape_buckets="off" if request.param == "packed" else "on")
    assert backend.packs is (request.param == "packed")
    return backend


def run(
    backend: HybridBackend, texts: list[str], wanted: list[set[str]], *, exclusive: bool = False
) -> list[TextParts]:
    """Returns the parts of texts in one batch."""
    batch = backend.collate(backend.tokenize(texts))
    return backend.run_parts(batch, [frozenset(each) for each in wanted], exclusive=exclusive)


def check(found: TextParts, expected: dict[str, Any], wanted: set[str]) -> None:
    """Checks the parts of one text."""
    sparse = None if found.sparse is None else json.loads(found.sparse)
    parts = {name: each for name, each in found._replace(sparse=sparse)._asdict().items() if each is not None}
    assert_parts(parts, expected, sorted(wanted))


def test_parts_are_those_of_the_definition(backend: HybridBackend, expected: list[dict[str, Any]]) -> None:
    """In a batch of all lengths in which each text wants other parts, alone, and in batches at the same time."""
    assert any(len(each["sparse"]) > 3 for each in expected)
    for exclusive in (True, False):
        for found, parts, wanted in zip(
            run(backend, TEXTS, WANTED, exclusive=exclusive), expected, WANTED, strict=True
        ):
            check(found, parts, wanted)
    with ThreadPoolExecutor(2) as pool:
        single = pool.map(lambda i: run(backend, [TEXTS[i]], [WANTED[i]]), range(len(TEXTS)))
        for (found,), parts, wanted in zip(single, expected, WANTED, strict=True):
            check(found, parts, wanted)


def test_the_dense_part_is_the_embedding(backend: HybridBackend, expected: list[dict[str, Any]]) -> None:
    """Also without its normalization."""
    batch = backend.collate(backend.tokenize(TEXTS))
    for found, parts in zip(backend.run(batch, EMBED, exclusive=False), expected, strict=True):
        check(TextParts(dense=found), parts, {DENSE})
    raw = backend.run_parts(batch, [frozenset({DENSE})] * len(TEXTS), exclusive=False, raw=True)
    for found, parts in zip(raw, expected, strict=True):
        assert found.dense is not None
        length = torch.tensor(found.dense).norm().item()
        assert length > 1.5
        check(TextParts(dense=found.dense / length), parts, {DENSE})


def test_a_backend_describes_itself(backend: HybridBackend, folder: Path) -> None:
    """Its operations are known before it is loaded."""
    ops = frozenset({*TEXT_OPS, EMBED_SPARSE, EMBED_PARTS})
    assert (backend.dim, backend.parts) == (SIZE, PARTS)
    assert backend.ops == frozenset(ops_of(str(folder))) == ops


def test_a_model_with_one_layer_has_that_part(tmp_path: Path) -> None:
    """Also as safetensors; without a layer for it, vectors of tokens are those before pooling."""
    folder = build_hybrid_model(tmp_path, ["sparse_linear"])
    expected = [reference(folder, text) for text in TEXTS]
    save_file(torch.load(folder / "sparse_linear.pt", weights_only=True), folder / "sparse_linear.safetensors")
    (folder / "sparse_linear.pt").unlink()
    backend = load(folder)
    assert backend.parts == (DENSE, SPARSE)
    for found, parts in zip(run(backend, TEXTS, [{DENSE, SPARSE}] * len(TEXTS)), expected, strict=True):
        check(found, parts, {DENSE, SPARSE})
    [tokens] = backend.run(backend.collate(backend.tokenize(["hello"])), EMBED_ALL, exclusive=False)
    assert tokens.shape == (7, SIZE)


def test_a_model_without_its_list_of_modules_is_read_as_flagembedding_does(tmp_path: Path) -> None:
    """The embedding is the first token's; sentence-transformers would take the mean of all."""
    folder = build_hybrid_model(tmp_path)
    (folder / "modules.json").unlink()
    found = run(load(folder), TEXTS, [set(PARTS)] * len(TEXTS))
    for parts, text in zip(found, TEXTS, strict=True):
        check(parts, reference(folder, text), set(PARTS))


def test_token_ids(backend: HybridBackend) -> None:
    """A single one is the first token, which has no vector; a prompt would go before texts."""
    batch = backend.collate(backend.tokenize([(5).to_bytes(4, "little")], Options()))
    [found] = backend.run_parts(batch, [frozenset(PARTS)], exclusive=False)
    assert found.multi_vector is not None
    assert found.multi_vector.shape[0] == 0


class _Exit:
    """Ends the process when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return exit, (3,)


@pytest.mark.parametrize(
    "content",
    [b"", b"no weights", pickle.dumps(_Exit()), torch.zeros(3), {"weight": torch.zeros(1, SIZE + 1)}],
    ids=["empty", "text", "code", "tensor", "wide"],
)
def test_a_layer_that_is_none_is_refused(tmp_path: Path, content: object) -> None:
    """No code in it runs; the error names the file."""
    path = tmp_path / "sparse_linear.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ModelLoadError, match=r"sparse_linear\.pt holds no layer for vectors of 32 numbers"):
        load_heads(find_in(tmp_path), SIZE, "cpu")


def test_a_layer_with_other_outputs_is_refused(tmp_path: Path) -> None:
    """A token has one weight."""
    torch.save({"weight": torch.zeros(24, SIZE)}, tmp_path / "sparse_linear.pt")
    with pytest.raises(ModelLoadError, match=r"sparse_linear\.pt has 24 outputs, and 1 is expected"):
        load_heads(find_in(tmp_path), SIZE, "cpu")
