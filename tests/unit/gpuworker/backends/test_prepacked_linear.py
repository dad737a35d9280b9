"""Linear layers with weights laid out ahead: the results are the same, and in doubt a layer works in the usual way."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import GELU, Linear, Module, Sequential
from torch.nn.functional import linear

from gpuworker.backends import prepacked_linear
from gpuworker.backends.sentence import SentenceBackend
from gpuworker.model_spec import parse_model
from tests.unit.gpuworker.backends.options import OPTIONS
from tests.unit.gpuworker.backends.test_sentence import TEXTS

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        not torch.backends.mkl.is_available(),  # type: ignore[no-untyped-call]
        reason="without MKL nothing is laid out",
    ),
]

LAID_OUT_S, USUAL_S = 1.0, 2.0
MANY = 4 * prepacked_linear.MANY_ROWS
"""Tokens of a batch with which any number of cores here may use oneDNN's layout."""

FASTER = pytest.mark.usefixtures("_layouts_are_faster")


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    """Gives the test's thread one core, as that of a runner."""
    with threads(1):
        yield


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Gives this thread a number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def _layouts_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the layout, which is timed first, the faster one in each trial: on a busy machine it might not be."""
    times = itertools.cycle((LAID_OUT_S, USUAL_S))
    monkeypatch.setattr(prepacked_linear, "_seconds", lambda *_: next(times))


def model() -> Sequential:
    """Layers of three shapes, one of them twice, one without a bias."""
    return Sequential(Linear(48, 96), GELU(), Linear(96, 48), Linear(48, 96, bias=False), GELU(), Linear(96, 48)).eval()


def is_prepacked(module: Module) -> bool:
    """Returns whether a layer uses weights laid out ahead."""
    return "forward" in vars(module)


@FASTER
@pytest.mark.parametrize("cores", [1, 2])
def test_the_results_are_the_same(cores: int) -> None:
    """That holds for any number of rows, for inputs of two and three dimensions, on one core and on two."""
    ours, usual = model(), model()
    ours.load_state_dict(usual.state_dict())
    assert prepacked_linear.prepack(ours, (1, 2), MANY) == 4
    with threads(cores), torch.inference_mode():
        for rows in (1, 3, 31, 100, 257, 513, 1_025):
            for shape in ((rows, 48), (1, rows, 48), (2, rows, 48)):
                inputs = torch.randn(shape)
                expected = usual(inputs)
                assert (ours(inputs) - expected).abs().max() <= 1e-5 * expected.abs().max()


@FASTER
def test_with_another_number_of_cores_layers_work_in_the_usual_way() -> None:
    """The layout is for one number of cores; with another, the result has the bits of the usual product."""
    layers = model()
    prepacked_linear.prepack(layers, (1,), MANY)
    first, inputs = layers[0], torch.randn(1, 40, 48)
    assert isinstance(first, Linear)
    with threads(2), torch.inference_mode():
        assert torch.equal(first(inputs), linear(inputs, first.weight, first.bias))


def test_each_number_of_cores_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials run in threads that end after them."""
    calls = []

    def seconds(*_: object) -> float:
        calls.append((torch.get_num_threads(), threading.current_thread()))
        return float(len(calls))

    monkeypatch.setattr(prepacked_linear, "_seconds", seconds)
    assert prepacked_linear.prepack(model(), (2, 1, 2), MANY) == 4
    assert [number for number, _ in calls] == [1] * 12 + [2] * 12  # MKL's and the usual one, oneDNN's and MKL's
    assert not any(thread.is_alive() for _, thread in calls)


def test_a_slower_layout_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shape has its trial. A layout that is as fast is used: the next start must decide in the same way."""
    for usual_s, number in ((1.0, 4), (1.0 / prepacked_linear.MAX_SLOWDOWN - 0.01, 0)):
        times = itertools.cycle((1.0, usual_s))
        monkeypatch.setattr(prepacked_linear, "_seconds", lambda *_, times=times: next(times))
        layers = model()
        assert prepacked_linear.prepack(layers, (1,), MANY) == number
        assert sum(map(is_prepacked, layers.modules())) == number


@FASTER
@pytest.mark.parametrize("wrong", ["numbers", "nan", "shape"])
def test_a_layout_with_other_results_is_not_used(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """The operator guarantees nothing for the numbers of rows that it gets here, so a trial decides."""
    product = prepacked_linear._mkl_product

    def broken(layer: Linear) -> prepacked_linear.Product:
        right = product(layer)

        def product_with_error(inputs: torch.Tensor) -> torch.Tensor:
            result = right(inputs)
            if layer.in_features != 48 or inputs.shape[-2] != 300:
                return result
            if wrong == "shape":
                return result[:, 1:]
            result[0, 7, 7] += 0.1 if wrong == "numbers" else torch.nan
            return result

        return product_with_error

    monkeypatch.setattr(prepacked_linear, "_mkl_product", broken)
    layers = model()
    assert prepacked_linear.prepack(layers, (1,), MANY) == 2
    assert [is_prepacked(layers[i]) for i in (0, 2, 3, 5)] == [False, True, False, True]


def bits_with(layers: Sequential, rows: int) -> torch.Tensor:
    """Returns the product of the first layer and random numbers."""
    with torch.inference_mode():
        result: torch.Tensor = layers[0](torch.randn(1, rows, 48, generator=torch.Generator().manual_seed(rows)))
    return result


@pytest.mark.parametrize("is_faster", [True, False])
def test_products_of_many_rows_use_onednn_where_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, *, is_faster: bool
) -> None:
    """Those of few rows do not, because it compiles code for each number of rows."""
    rows_seen = []
    product = prepacked_linear._onednn_product

    def recorded(layer: Linear) -> prepacked_linear.Product:
        with_layout = product(layer)

        def product_of(inputs: torch.Tensor) -> torch.Tensor:
            rows_seen.append(inputs.shape[-2])
            return with_layout(inputs)

        return product_of

    monkeypatch.setattr(prepacked_linear, "_onednn_product", recorded)
    times = itertools.cycle((LAID_OUT_S, USUAL_S, LAID_OUT_S if is_faster else USUAL_S, USUAL_S))
    monkeypatch.setattr(prepacked_linear, "_seconds", lambda *_: next(times))
    layers = model()
    assert prepacked_linear.prepack(layers, (1,), MANY) == 4
    rows_seen.clear()
    for rows in (1, 300, prepacked_linear.MANY_ROWS - 1, prepacked_linear.MANY_ROWS, 1_000):
        bits_with(layers, rows)
    assert rows_seen == ([prepacked_linear.MANY_ROWS, 1_000] if is_faster else [])


@FASTER
@pytest.mark.parametrize(("cores", "max_rows", "number"), [(1, 512, 0), (1, 513, 4), (2, 1_024, 0), (2, 1_025, 4)])
def test_onednn_is_tried_for_batches_of_many_rows_on_each_core(
    monkeypatch: pytest.MonkeyPatch, cores: int, max_rows: int, number: int
) -> None:
    """Otherwise its layout would take memory for nothing."""
    laid_out = []
    product = prepacked_linear._onednn_product

    def recorded(layer: Linear) -> prepacked_linear.Product:
        laid_out.append(layer)
        return product(layer)

    monkeypatch.setattr(prepacked_linear, "_onednn_product", recorded)
    assert prepacked_linear.prepack(model(), (cores,), max_rows) == 4
    assert len(laid_out) == number


@FASTER
def test_a_layout_of_onednn_with_other_results_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then many rows have the bits that MKL's layout gives."""
    usual, broken = model(), model()
    broken.load_state_dict(usual.state_dict())
    monkeypatch.setattr(prepacked_linear, "_has_onednn", lambda: False)
    prepacked_linear.prepack(usual, (1,), MANY)
    monkeypatch.setattr(prepacked_linear, "_has_onednn", lambda: True)
    monkeypatch.setattr(prepacked_linear, "_onednn_product", lambda layer: lambda inputs: layer(inputs) + 0.1)
    prepacked_linear.prepack(broken, (1,), MANY)
    assert torch.equal(bits_with(broken, 700), bits_with(usual, 700))


@FASTER
def test_other_formats_are_not_laid_out() -> None:
    """The layout is for float32."""
    assert prepacked_linear.prepack(model().to(torch.bfloat16), (1,), MANY) == 0


def test_without_mkl_nothing_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other builds of torch have no such operator."""
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert prepacked_linear.prepack(model(), (1,), MANY) == 0


@FASTER
@pytest.mark.parametrize("exclusive", [True, False])
def test_the_model_gives_the_same_vectors(exclusive: bool) -> None:
    """MiniLM has the same vectors with the layout and without it."""
    found = []
    for prepack in (True, False):
        backend = SentenceBackend(parse_model("minilm"), replace(OPTIONS, cores=2, prepack=prepack))
        linears = [module for module in backend._runner.model.modules() if isinstance(module, Linear)]
        assert [is_prepacked(layer) for layer in linears] == [prepack] * 37
        found.append(np.asarray(backend.run(backend.collate(backend.tokenize(TEXTS * 4)), exclusive=exclusive)))
    assert np.abs(found[0] - found[1]).max() <= 1e-5
