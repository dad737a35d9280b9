"""The choice of how a transformer runs: without padding, compiled, with prepacked weights, or by another runtime.

Each of these is checked at the start: the vectors of some texts must stay what they are. Prepacked weights are checked
for each shape of a layer instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np
import structlog
import torch
from sentence_transformers.base.modules.transformer import Transformer

from gpuworker.backends import first_tokens, model_loading, packing, precision, prepacked_linear
from gpuworker.backends.equivalence import PROBE_TEXTS, TOLERANCE
from gpuworker.backends.onnx_transformer import OnnxTransformer, ensure_graph
from gpuworker.backends.runtimes import RUNTIMES, Cores
from gpuworker.model_spec import Model, ModelLoadError, one_line

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector
    from gpuworker.backends.sentence_runner import SentenceRunner
    from gpuworker.backends.tokenizer import ModelTokenizer
    from gpuworker.ipc.engine_options import EngineOptions

log = structlog.get_logger()


def accelerate(
    runner: SentenceRunner, model: Model, options: EngineOptions, dtype: torch.dtype, *, cores: int, may_pack: bool
) -> None:
    """Makes the transformer run as fast as it can here, and casts its weights.

    Args:
        runner: of the model. On a CPU the model is in float32 still.
        model: its name and place.
        options: of the engine.
        dtype: the format in which it is to run.
        cores: of the engine.
        may_pack: whether batches without padding may be tried.

    Raises:
        ModelLoadError: the model cannot run with these options, or returns other vectors then.
    """
    if options.backend != "torch":
        change = f"--backend {options.backend}"
        _apply_checked(runner, change, dtype, lambda: _use_graph(runner, model, options.backend, dtype, cores))
        return
    if runner.device == "cpu":
        if may_pack:
            _try_packing(runner, torch.float32)
        precision.cast_weights(runner.model, dtype)
    else:
        precision.cast_weights(runner.model, dtype)
        if may_pack and runner.device.startswith("cuda"):
            _try_packing(runner, dtype)
    if options.compile:
        _apply_checked(runner, "--compile", dtype, lambda: _compile(runner, model))
    elif options.prepack and runner.device == "cpu":
        layers = prepacked_linear.prepack(runner.model, runner.threads.values(), runner.max_tokens)
        log.debug("weights laid out ahead", layers=layers)


def _apply_checked(runner: SentenceRunner, change: str, dtype: torch.dtype, apply: Callable[[], None]) -> None:
    """Changes how the transformer runs, and checks that its vectors stay what they are."""
    expected = runner.encode(PROBE_TEXTS)
    try:
        apply()
        vectors = [_run_probe(runner, exclusive=exclusive) for exclusive in (True, False)]
    except ModelLoadError:
        raise
    except Exception as error:  # the libraries raise errors of any class
        raise ModelLoadError(f"{change} cannot run this model here: {one_line(error)}") from error
    difference = max(runner.difference(each, expected) for each in vectors)
    if not difference <= TOLERANCE[dtype]:
        raise ModelLoadError(
            f"{change} gives other vectors than torch does, off by {difference:.1g} of 1: leave it out"
        )


def _run_probe(runner: SentenceRunner, *, exclusive: bool) -> Vector:
    tokenizer = cast("ModelTokenizer", runner.tokenizer)  # models without one are refused before this
    vectors = runner.run(runner.collate(tokenizer.tokenize(PROBE_TEXTS, runner.probe_options)), exclusive=exclusive)
    return np.asarray(vectors)


def _transformer_of(runner: SentenceRunner) -> Transformer | None:
    """Returns the transformer of a model of texts; None for other models."""
    transformer = runner.model[0]
    return transformer if runner.tokenizer is not None and isinstance(transformer, Transformer) else None


def _compile(runner: SentenceRunner, model: Model) -> None:
    """Has torch compile the transformer, for any shape; a GPU then replays a CUDA graph for each shape that it ran."""
    transformer = _transformer_of(runner)
    if transformer is None:
        raise ModelLoadError(f"--compile is for transformers of texts, and {model.name} is none")
    # Not `Module.compile`, which applies to calls of the module: sentence-transformers calls its `forward`.
    mode = "reduce-overhead" if runner.device.startswith("cuda") else "default"
    transformer.model.forward = torch.compile(transformer.model.forward, dynamic=True, mode=mode)


def _use_graph(runner: SentenceRunner, model: Model, backend: str, dtype: torch.dtype, cores: int) -> None:
    """Replaces the transformer by an ONNX graph that another runtime runs."""
    transformer = _transformer_of(runner)
    if transformer is None or runner.tokenizer is None:
        raise ModelLoadError(f"--backend {backend} runs transformers of texts: {model.name} needs torch")
    commit = model_loading.commit_of(runner.model)
    path = ensure_graph(transformer.model, runner.tokenizer.input_names, model.path, commit)
    load_session = RUNTIMES[backend]
    dtype_name = str(dtype).removeprefix("torch.")
    sessions = {threads: load_session(path, Cores(cores, threads), dtype_name) for threads in runner.threads.values()}
    runner.model[0] = OnnxTransformer(sessions)


def _try_packing(runner: SentenceRunner, dtype: torch.dtype) -> None:
    """Has the transformer run batches without padding, if its vectors then stay what they are."""
    transformer = _transformer_of(runner)
    if transformer is None:
        return
    usual = transformer.model.config._attn_implementation  # noqa: SLF001 - there is no public attribute
    expected = runner.encode(PROBE_TEXTS)
    runner.packs = True  # for the trial
    runner.first_position = packing.first_position_of(transformer.model)
    runner.prepare_packing()
    try:
        transformer.model.set_attn_implementation(packing.IMPLEMENTATION)
        if runner.difference(_run_probe(runner, exclusive=False), expected) <= TOLERANCE[dtype]:
            _try_first_tokens(runner, expected, dtype)
            return
    except Exception as error:  # noqa: BLE001 - not every model can run so, and each raises an error of another class
        log.debug("this model does not pack", error=type(error).__name__)
    transformer.model.set_attn_implementation(usual)
    runner.packs = False


def _try_first_tokens(runner: SentenceRunner, expected: Vector, dtype: torch.dtype) -> None:
    """Has the last layer compute the first token of each text alone, if the vectors then stay what they are."""
    try:
        runner.first_token_steps = first_tokens.steps_to_pooling(runner.model)
        if runner.first_token_steps is None or (
            runner.difference(_run_probe(runner, exclusive=False), expected) <= TOLERANCE[dtype]
        ):
            return
    except Exception as error:  # noqa: BLE001 - as above
        log.debug("the last layer of this model computes all tokens", error=type(error).__name__)
    runner.first_token_steps = None
