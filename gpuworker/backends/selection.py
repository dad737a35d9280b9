"""The choice of a backend for a model."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuworker.backends.base import Backend
from gpuworker.model_files import Find, find_in, read_files
from gpuworker.model_spec import Model, ModelLoadError
from gpuworker.model_type import ModelType, type_of
from shared.messages import CLASSIFY

if TYPE_CHECKING:
    from gpuworker.ipc.engine_options import EngineOptions


def load_backend(model: Model, options: EngineOptions) -> Backend:
    """Loads a model with the backend of its kind.

    Raises:
        ModelLoadError: the model cannot be loaded, or not with this `--backend`.
    """
    if model.kind == "sentence":
        return _load_transformer(model, options)
    if options.backend != "torch":
        raise ModelLoadError(f"--backend {options.backend} runs sentence-transformers models, and {model.name} is none")
    if model.kind == "function":
        from gpuworker.backends.function import FunctionBackend  # noqa: PLC0415 - imports user code

        return FunctionBackend(model, options)
    from gpuworker.backends.simulated import SimulatedBackend  # noqa: PLC0415 - imports numpy

    return SimulatedBackend(model)


def _load_transformer(model: Model, options: EngineOptions) -> Backend:
    """Loads a sentence-transformers model. Raises ModelLoadError: as `load_backend`, or its type is not served."""
    model_type = find_type(model, options.model_revision)
    if model_type.refusal:
        raise ModelLoadError(f"model {model.name} is not served: {model_type.refusal}")
    if CLASSIFY in model_type.ops:
        from gpuworker.backends.cross_encoder import CrossEncoderBackend  # noqa: PLC0415 - imports torch, for seconds

        return CrossEncoderBackend(model, options, model_type)
    if model_type.name == "hybrid":
        from gpuworker.backends.hybrid_encoder import HybridBackend  # noqa: PLC0415 - imports torch, for seconds

        return HybridBackend(model, options, model_type, find_of(model, options.model_revision))
    if model_type.name == "sparse":
        from gpuworker.backends.sparse_encoder import SparseEncoderBackend  # noqa: PLC0415 - imports torch, for seconds

        return SparseEncoderBackend(model, options)
    if model_type.name == "multi-vector":
        from gpuworker.backends.multi_vector_encoder import MultiVectorBackend  # noqa: PLC0415 - imports torch

        return MultiVectorBackend(model, options)
    from gpuworker.backends.sentence import SentenceBackend  # noqa: PLC0415 - imports torch, for seconds

    return SentenceBackend(model, options)


def find_type(model: Model, revision: str | None) -> ModelType:
    """Returns what a sentence-transformers model is, by its files in a folder or on the hub."""
    return type_of(read_files(find_of(model, revision)))


def find_of(model: Model, revision: str | None) -> Find:
    """Returns how to find the files of a model in its folder or on the hub.

    If the hub does not return a file, the model counts as one without it: to load the model says what is wrong.
    """
    folder = Path(model.path)
    if folder.is_dir():
        return find_in(folder)
    from sentence_transformers.util import load_file_path  # noqa: PLC0415 - imports torch, for seconds

    def find(name: str) -> Path | None:
        with suppress(Exception):  # of its HTTP library, or of the hub
            path = load_file_path(model.path, name, revision=revision)
            return None if path is None else Path(path)
        return None

    return find
