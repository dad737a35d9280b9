"""Linear layers whose weights are laid out for the matrix product once, and not in each product anew.

A CPU's matrix product first copies the weights into the order in which its kernel reads them. For a batch of twenty
short texts that is a sixth of the time, for one alone half of it. MKL can keep them so (`cblas_sgemm_pack`, which costs
as much memory as the weights again), and torch has an operator for it that its own compiler uses. That operator is none
of torch's public ones: so each shape of a layer is tried first, for what it gives and for how long it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch.nn import Linear, Module
from torch.nn.functional import linear

ROWS = 256
"""What the layout is optimized for: about half a full batch. Any other number of rows goes with it too, and a handful
hardly less well than with a layout for them."""

TRIED_ROWS = (1, 2, 7, 16, 33, 64, 129, ROWS, 300, 511)
TIMED_ROWS = 128
TIMES = 5
SLOWER = 1.2
"""Nothing is laid out for a product that takes so many times longer by it. Less may be chance, and then the last bits
of a vector would differ from one start of the engine to the next."""

TOLERANCE = 1e-5
"""Largest difference to the usual product, as a share of the largest number in it: what the order of sums changes."""

Product = Callable[[torch.Tensor], torch.Tensor]


def prepack(model: Module, threads: Iterable[int]) -> int:
    """Has all linear layers that gain by it use weights laid out ahead, in threads with so many cores each.

    They work as before in threads with any other number: MKL wants as many for the product as for the layout. So each
    number takes as much memory as the weights. To be called with float32 weights that change no more.

    Returns:
        How many layers use such weights for at least one of the numbers.
    """
    if not (torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")):  # type: ignore[no-untyped-call]
        return 0
    layers = list(_layers(model))
    products: list[dict[int, Product]] = [{} for _ in layers]
    for number in sorted(set(threads)):
        _with_threads(number, partial(_lay_out, number, layers, products))
    for layer, found in zip(layers, products, strict=True):
        if found:
            layer.forward = partial(_forward, layer, found)  # type: ignore[method-assign]
    return sum(1 for found in products if found)


def _with_threads(number: int, work: Callable[[], object]) -> None:
    """Does something in a thread with so many cores, that then is gone with its helpers: one at rest slows others."""

    def run() -> None:
        torch.set_num_threads(number)
        work()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()


def _lay_out(threads: int, layers: Sequence[Linear], products: Sequence[dict[int, Product]]) -> None:
    gains: dict[tuple[int, int, bool], bool] = {}
    for layer, found in zip(layers, products, strict=True):
        shape = (layer.out_features, layer.in_features, "bias" in dict(layer.named_parameters()))
        product = _product(layer)
        if shape not in gains:
            gains[shape] = _gains(layer, product)
        if gains[shape]:
            found[threads] = product


def _layers(model: Module) -> Iterator[Linear]:
    for module in model.modules():
        if type(module) is Linear and module.weight.dtype == torch.float32 and module.weight.device.type == "cpu":
            yield module


def _product(layer: Linear) -> Product:
    given = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    weight, bias = given["weight"], given.get("bias")
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, ROWS)  # noqa: SLF001
    operator = torch.ops.mkl._mkl_linear.default  # noqa: SLF001

    def product(inputs: torch.Tensor) -> torch.Tensor:
        # It takes the usual way unless it is told that the layout was made for this number of rows.
        found: torch.Tensor = operator(inputs, packed, weight, bias, inputs.numel() // inputs.shape[-1])
        return found

    return product


def _forward(layer: Linear, products: Mapping[int, Product], inputs: torch.Tensor) -> torch.Tensor:
    product = products.get(torch.get_num_threads())
    return linear(inputs, layer.weight, layer.bias) if product is None else product(inputs)


def _gains(layer: Linear, product: Product) -> bool:
    """Whether it gives what the usual product gives, and is not slower."""
    usual = partial(linear, weight=layer.weight, bias=layer.bias)
    random = torch.Generator().manual_seed(1)
    with torch.inference_mode():
        for rows in TRIED_ROWS:
            inputs = torch.randn(1, rows, layer.in_features, generator=random)
            expected, found = usual(inputs), product(inputs)
            if found.shape != expected.shape or not (found - expected).abs().max() <= TOLERANCE * expected.abs().max():
                return False
        inputs = torch.randn(1, TIMED_ROWS, layer.in_features, generator=random)
        return _seconds(product, inputs) < SLOWER * _seconds(usual, inputs)


def _seconds(product: Product, inputs: torch.Tensor) -> float:
    """Returns the shortest of some times: others may have had the core in the rest."""

    def once() -> float:
        began = time.perf_counter()
        product(inputs)
        return time.perf_counter() - began

    return min(once() for _ in range(TIMES))
