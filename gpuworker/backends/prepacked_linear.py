"""Linear layers whose weights are laid out for the matrix product once, and not again in each product.

A CPU's matrix product first copies the weights into the order in which its kernel reads them. For a batch of twenty
short texts that is a sixth of the time, for a single text half of it. MKL can keep this layout (`cblas_sgemm_pack`,
which needs the memory of the weights a second time), and torch has an operator for it that its own compiler uses.
oneDNN has a layout too: on CPUs from AMD, products of many rows take a tenth less time with it than with MKL's; on
those from Intel they take longer. But it compiles code for each number of rows, which takes a millisecond: so products
of few rows never use it. The operators are not public: so each shape of a layer is tried first, for its result and for
its speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

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

MANY_ROWS = 512
"""Products of at least this many rows for each core may use oneDNN's layout. With a hidden size of 384, the product of
the largest shape takes six times as long as to compile the code for it, and a model runs that once for each layer."""

TRIED_MANY_ROWS = (MANY_ROWS, 777)
MAX_ONEDNN_TIME = 0.97
"""It is used if a product of many rows takes at most this part of the time with MKL's layout. Where both take about the
same time chance decides, and the last bits of a vector may differ from one start of the engine to the next."""

TOLERANCE = 1e-5
"""Largest difference from the usual product, as a fraction of its largest number: the effect of the order of sums."""

Product = Callable[[torch.Tensor], torch.Tensor]
Layout = Callable[[Linear], Product]
"""Lays the weights of a layer out, and returns its product with them."""


def prepack(model: Module, threads: Iterable[int], max_rows: int) -> int:
    """Makes all linear layers that gain by it use prepacked weights, in threads with one of these numbers of cores.

    In threads with any other number they work as before: MKL requires the same number for the product as for the
    layout. So each number takes the memory of the weights once more, and oneDNN's layout does where it is used. Call it
    with float32 weights that do not change after that.

    Args:
        model: whose layers are changed.
        threads: the numbers of cores.
        max_rows: maximum tokens of a batch.

    Returns:
        The number of layers that use such weights for at least one of the numbers.
    """
    if not (torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")):  # type: ignore[no-untyped-call]
        return 0
    layers = list(_layers(model))
    products: list[dict[int, Product]] = [{} for _ in layers]
    onednn_product = cache(_onednn_product)  # the same layout serves any number of cores
    for number in sorted(set(threads)):
        layout_of_many = onednn_product if _has_onednn() and max_rows > MANY_ROWS * number else None
        _with_threads(number, partial(_lay_out, number, layers, products, layout_of_many))
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


def _lay_out(
    threads: int,
    layers: Sequence[Linear],
    products: Sequence[dict[int, Product]],
    layout_of_many: Layout | None,
) -> None:
    layouts: dict[tuple[int, int, bool], Layout | None] = {}
    for layer, by_threads in zip(layers, products, strict=True):
        shape = (layer.out_features, layer.in_features, "bias" in dict(layer.named_parameters()))
        if shape not in layouts:
            layouts[shape] = _choose_layout(layer, layout_of_many)
        if (lay_out := layouts[shape]) is not None:
            by_threads[threads] = lay_out(layer)


def _choose_layout(layer: Linear, layout_of_many: Layout | None) -> Layout | None:
    """Returns what makes the products of layers of this shape here, maybe another of many rows; None: the usual way."""
    product = _mkl_product(layer)
    if not _gains(layer, product):
        return None
    if layout_of_many is not None and _many_rows_gain(layer, product, layout_of_many(layer)):
        return lambda each: _by_rows(_mkl_product(each), layout_of_many(each))
    return _mkl_product


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]


def _layers(model: Module) -> Iterator[Linear]:
    for module in model.modules():
        if type(module) is Linear and module.weight.dtype == torch.float32 and module.weight.device.type == "cpu":
            yield module


def _weight_and_bias(layer: Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    return parameters["weight"], parameters.get("bias")


def _mkl_product(layer: Linear) -> Product:
    weight, bias = _weight_and_bias(layer)
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, ROWS)  # noqa: SLF001
    operator = torch.ops.mkl._mkl_linear.default  # noqa: SLF001

    def product(inputs: torch.Tensor) -> torch.Tensor:
        # It works in the usual way unless this argument says that the layout was made for this number of rows.
        result: torch.Tensor = operator(inputs, packed, weight, bias, _rows_of(inputs))
        return result

    return product


def _onednn_product(layer: Linear) -> Product:
    weight, bias = _weight_and_bias(layer)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, MANY_ROWS)  # noqa: SLF001
    operator = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001

    def product(inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = operator(inputs, packed, bias, "none", [], "")  # applies no function to the result
        return result

    return product


def _by_rows(of_few: Product, of_many: Product) -> Product:
    min_rows = MANY_ROWS * torch.get_num_threads()

    def product(inputs: torch.Tensor) -> torch.Tensor:
        return of_many(inputs) if _rows_of(inputs) >= min_rows else of_few(inputs)

    return product


def _rows_of(inputs: torch.Tensor) -> int:
    return inputs.numel() // inputs.shape[-1]


def _forward(layer: Linear, products: Mapping[int, Product], inputs: torch.Tensor) -> torch.Tensor:
    product = products.get(torch.get_num_threads())
    return linear(inputs, layer.weight, layer.bias) if product is None else product(inputs)


def _gains(layer: Linear, product: Product) -> bool:
    """Returns whether a product has the results of the usual one, and is not slower."""
    usual = partial(linear, weight=layer.weight, bias=layer.bias)
    inputs = _random_rows(layer, TIMED_ROWS)
    with torch.inference_mode():
        is_right = _is_right(layer, product, TRIED_ROWS)
        return is_right and _seconds(product, inputs) < MAX_SLOWDOWN * _seconds(usual, inputs)


def _many_rows_gain(layer: Linear, product: Product, other: Product) -> bool:
    """Returns whether another product of many rows has the usual results, and is faster than this one."""
    inputs = _random_rows(layer, MANY_ROWS)
    with torch.inference_mode():
        is_right = _is_right(layer, other, TRIED_MANY_ROWS)
        return is_right and _seconds(other, inputs) <= MAX_ONEDNN_TIME * _seconds(product, inputs)


def _is_right(layer: Linear, product: Product, tried_rows: Sequence[int]) -> bool:
    """Returns whether a product has the results of the usual one, for these numbers of rows."""
    for rows in tried_rows:
        inputs = _random_rows(layer, rows)
        expected, result = linear(inputs, layer.weight, layer.bias), product(inputs)
        if result.shape != expected.shape:
            return False
        if not (result - expected).abs().max() <= TOLERANCE * expected.abs().max():
            return False
    return True


def _random_rows(layer: Linear, rows: int) -> torch.Tensor:
    return torch.randn(1, rows, layer.in_features, generator=torch.Generator().manual_seed(1))


def _seconds(product: Product, inputs: torch.Tensor) -> float:
    """Returns the shortest of TIMES measurements: in the others another process may have used the core."""

    def once() -> float:
        began = time.perf_counter()
        product(inputs)
        return time.perf_counter() - began

    return min(once() for _ in range(TIMES))
