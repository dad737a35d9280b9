"""Linear layers whose weights are laid out for the matrix product once, and not again in each product.

A CPU's matrix product first copies the weights into the order in which its kernel reads them. For a batch of twenty
short texts that is a sixth of the time, for a single text half of it. MKL can keep this layout (`cblas_sgemm_pack`,
which needs the memory of the weights a second time), and torch has an operator for it that its own compiler uses. The
operator is not public: so each shape of a layer is tried first, for its result and for its speed.
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
"""The layout is optimized for this number: about half a full batch. Other numbers of rows work too; even a few rows are
nearly as fast as with a layout for their number."""

TRIED_ROWS = (1, 2, 7, 16, 33, 64, 129, ROWS, 300, 511)
TIMED_ROWS = 128
TIMES = 5
MAX_SLOWDOWN = 1.2
"""A product that takes this many times longer with the layout keeps the usual way. A smaller factor may be chance, and
then the last bits of a vector would differ from one start of the engine to the next."""

TOLERANCE = 1e-5
"""Largest difference from the usual product, as a fraction of its largest number: the effect of the order of sums."""

Product = Callable[[torch.Tensor], torch.Tensor]


def prepack(model: Module, threads: Iterable[int]) -> int:
    """Makes all linear layers that gain by it use prepacked weights, in threads with one of these numbers of cores.

    In threads with any other number they work as before: MKL requires the same number for the product as for the
    layout. So each number takes the memory of the weights once more. Call it with float32 weights that do not change
    after that.

    Returns:
        The number of layers that use such weights for at least one of the numbers.
    """
    if not (torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")):  # type: ignore[no-untyped-call]
        return 0
    layers = list(_layers(model))
    products: list[dict[int, Product]] = [{} for _ in layers]
    for number in sorted(set(threads)):
        _with_threads(number, partial(_lay_out, number, layers, products))
    for layer, by_threads in zip(layers, products, strict=True):
        if by_threads:
            layer.forward = partial(_forward, layer, by_threads)  # type: ignore[method-assign]
    return sum(1 for by_threads in products if by_threads)


def _with_threads(number: int, function: Callable[[], object]) -> None:
    """Calls a function in a thread with this number of cores. The thread then ends: its idle helpers slow others."""

    def run() -> None:
        torch.set_num_threads(number)
        function()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()


def _lay_out(threads: int, layers: Sequence[Linear], products: Sequence[dict[int, Product]]) -> None:
    gains: dict[tuple[int, int, bool], bool] = {}
    for layer, by_threads in zip(layers, products, strict=True):
        shape = (layer.out_features, layer.in_features, "bias" in dict(layer.named_parameters()))
        product = _product(layer)
        if shape not in gains:
            gains[shape] = _gains(layer, product)
        if gains[shape]:
            by_threads[threads] = product


def _layers(model: Module) -> Iterator[Linear]:
    for module in model.modules():
        if type(module) is Linear and module.weight.dtype == torch.float32 and module.weight.device.type == "cpu":
            yield module


def _product(layer: Linear) -> Product:
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    weight, bias = parameters["weight"], parameters.get("bias")
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, ROWS)  # noqa: SLF001
    operator = torch.ops.mkl._mkl_linear.default  # noqa: SLF001

    def product(inputs: torch.Tensor) -> torch.Tensor:
        # It works in the usual way unless this argument says that the layout was made for this number of rows.
        result: torch.Tensor = operator(inputs, packed, weight, bias, inputs.numel() // inputs.shape[-1])
        return result

    return product


def _forward(layer: Linear, products: Mapping[int, Product], inputs: torch.Tensor) -> torch.Tensor:
    product = products.get(torch.get_num_threads())
    return linear(inputs, layer.weight, layer.bias) if product is None else product(inputs)


def _gains(layer: Linear, product: Product) -> bool:
    """Returns whether a product has the results of the usual one, and is not slower."""
    usual = partial(linear, weight=layer.weight, bias=layer.bias)
    random = torch.Generator().manual_seed(1)
    with torch.inference_mode():
        for rows in TRIED_ROWS:
            inputs = torch.randn(1, rows, layer.in_features, generator=random)
            expected, result = usual(inputs), product(inputs)
            if result.shape != expected.shape:
                return False
            if not (result - expected).abs().max() <= TOLERANCE * expected.abs().max():
                return False
        inputs = torch.randn(1, TIMED_ROWS, layer.in_features, generator=random)
        return _seconds(product, inputs) < MAX_SLOWDOWN * _seconds(usual, inputs)


def _seconds(product: Product, inputs: torch.Tensor) -> float:
    """Returns the shortest of TIMES measurements: in the others another process may have used the core."""

    def once() -> float:
        began = time.perf_counter()
        product(inputs)
        return time.perf_counter() - began

    return min(once() for _ in range(TIMES))
