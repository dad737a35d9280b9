"""The choice of a backend for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuworker.backends.base import Backend
from gpuworker.model_spec import Model, ModelLoadError

if TYPE_CHECKING:
    from gpuworker.ipc.engine_options import EngineOptions


def load_backend(model: Model, options: EngineOptions) -> Backend:
    """Loads a model with the backend of its kind.

    Raises:
        ModelLoadError: the model cannot be loaded, or not with this `--backend`.
    """
    if model.kind == "sentence":
        from gpuworker.backends.sentence import SentenceBackend  # noqa: PLC0415 - imports torch, for seconds

        return SentenceBackend(model, options)
    if options.backend != "torch":
        raise ModelLoadError(f"--backend {options.backend} runs sentence-transformers models, and {model.name} is none")
    if model.kind == "function":
        from gpuworker.backends.function import FunctionBackend  # noqa: PLC0415 - imports user code

        return FunctionBackend(model, options)
    from gpuworker.backends.simulated import SimulatedBackend  # noqa: PLC0415 - imports numpy

    return SimulatedBackend(model)
