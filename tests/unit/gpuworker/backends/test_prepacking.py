"""Linear layers with weights laid out ahead: the same numbers, and the usual way wherever there is a doubt."""

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

from gpuworker.backends import prepacking
from gpuworker.backends.sentence import SentenceBackend
from gpuworker.models import parse_model
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
WELL = pytest.mark.usefixtures("_trials_end_well")


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    """As in a runner's thread."""
    with threads(1):
        yield


@contextmanager
def threads(number: int) -> Iterator[None]:
    """This thread has so many cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def _trials_end_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has each trial of speed find the layout, which is timed first, faster: a busy machine might not."""
    times = itertools.cycle((LAID_OUT_S, USUAL_S))
    monkeypatch.setattr(prepacking, "_seconds", lambda *_: next(times))


def model() -> Sequential:
    """Layers of three shapes, one of them twice, one without a bias."""
    return Sequential(Linear(48, 96), GELU(), Linear(96, 48), Linear(48, 96, bias=False), GELU(), Linear(96, 48)).eval()


def is_prepacked(module: Module) -> bool:
    """Whether a layer works in the new way."""
    return "forward" in vars(module)


@WELL
@pytest.mark.parametrize("cores", [1, 2])
def test_the_numbers_are_the_same(cores: int) -> None:
    """For any number of rows, and inputs of two dimensions or three, on one core and on two."""
    ours, usual = model(), model()
    ours.load_state_dict(usual.state_dict())
    assert prepacking.prepack(ours, (1, 2)) == 4
    with threads(cores), torch.inference_mode():
        for rows in (1, 3, 31, 100, 257, 513):
            for shape in ((rows, 48), (1, rows, 48), (2, rows, 48)):
                inputs = torch.randn(shape)
                expected = usual(inputs)
                assert (ours(inputs) - expected).abs().max() <= 1e-5 * expected.abs().max()


@WELL
def test_with_another_number_of_cores_the_usual_way_is_taken() -> None:
    """The layout is for that number; the result is that of the usual product to the bit."""
    layers = model()
    prepacking.prepack(layers, (1,))
    first, inputs = layers[0], torch.randn(1, 40, 48)
    assert isinstance(first, Linear)
    with threads(2), torch.inference_mode():
        assert torch.equal(first(inputs), linear(inputs, first.weight, first.bias))


def test_each_number_of_cores_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """In threads that are gone afterwards."""
    seen = []

    def seconds(*_: object) -> float:
        seen.append((torch.get_num_threads(), threading.current_thread()))
        return float(len(seen))

    monkeypatch.setattr(prepacking, "_seconds", seconds)
    assert prepacking.prepack(model(), (2, 1, 2)) == 4
    assert [number for number, _ in seen] == [1] * 6 + [2] * 6
    assert not any(thread.is_alive() for _, thread in seen)


def test_what_is_slower_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shape is tried by itself. What is as fast is laid out: the next start must not come to another decision."""
    for usual_s, number in ((1.0, 4), (1.0 / prepacking.MAX_SLOWDOWN - 0.01, 0)):
        times = itertools.cycle((1.0, usual_s))
        monkeypatch.setattr(prepacking, "_seconds", lambda *_, times=times: next(times))
        layers = model()
        assert prepacking.prepack(layers, (1,)) == number
        assert sum(map(is_prepacked, layers.modules())) == number


@WELL
@pytest.mark.parametrize("wrong", ["numbers", "nan", "shape"])
def test_what_gives_something_else_is_left_alone(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """The operator promises nothing for the numbers of rows that it is used with, so a trial decides."""
    product = prepacking._product

    def broken(layer: Linear) -> prepacking.Product:
        right = product(layer)

        def give(inputs: torch.Tensor) -> torch.Tensor:
            found = right(inputs)
            if layer.in_features != 48 or inputs.shape[-2] != 300:
                return found
            if wrong == "shape":
                return found[:, 1:]
            found[0, 7, 7] += 0.1 if wrong == "numbers" else torch.nan
            return found

        return give

    monkeypatch.setattr(prepacking, "_product", broken)
    layers = model()
    assert prepacking.prepack(layers, (1,)) == 2
    assert [is_prepacked(layers[i]) for i in (0, 2, 3, 5)] == [False, True, False, True]


@WELL
def test_other_formats_are_left_alone() -> None:
    """The layout is for float32."""
    assert prepacking.prepack(model().to(torch.bfloat16), (1,)) == 0


def test_without_mkl_nothing_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other builds of torch have no such operator."""
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert prepacking.prepack(model(), (1,)) == 0


@WELL
@pytest.mark.parametrize("exclusive", [True, False])
def test_the_model_gives_the_same_vectors(exclusive: bool) -> None:
    """MiniLM with layers laid out, and without."""
    found = []
    for prepack in (True, False):
        backend = SentenceBackend(parse_model("minilm"), replace(OPTIONS, cores=2, prepack=prepack))
        linears = [module for module in backend._runner.model.modules() if isinstance(module, Linear)]
        assert [is_prepacked(layer) for layer in linears] == [prepack] * 37
        found.append(np.asarray(backend.run(backend.collate(backend.tokenize(TEXTS * 4)), exclusive=exclusive)))
    assert np.abs(found[0] - found[1]).max() <= 1e-5
