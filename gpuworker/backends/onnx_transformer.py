"""A transformer as an ONNX graph, which other runtimes run instead of torch.

Everything around it stays: the tokenizer before it, and after it the pooling and any other step of a
sentence-transformers model.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import torch

from gpuworker.backends.revision import revision_of
from gpuworker.model_spec import ModelLoadError, one_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Session = Callable[[Mapping[str, NDArray[np.int64]]], NDArray[np.float32]]
    """Runs a graph: from arrays of shape (texts, tokens) by name to one of shape (texts, tokens, dim)."""

log = structlog.get_logger()

FILE = "model.onnx"
SHIPPED = Path("onnx") / FILE
"""Where sentence-transformers puts a model's graph, in the model's folder."""

OUTPUTS = ("token_embeddings", "last_hidden_state")
"""The names that a graph may give to its vectors of tokens; otherwise they are its first output."""

EXAMPLE = (2, 7)
"""Texts and tokens of the batch that the exporter traces. Any numbers work except 0 and 1, which are special to it."""


class OnnxTransformer(torch.nn.Module):
    """Replaces the transformer. As with prepacking, torch's number of threads chooses the session.

    Args:
        sessions: by number of threads.
    """

    def __init__(self, sessions: Mapping[int, Session]) -> None:
        super().__init__()
        self._sessions = dict(sessions)

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Adds the vectors of tokens to the features of a batch."""
        arrays = {name: value.numpy() for name, value in features.items() if isinstance(value, torch.Tensor)}
        vectors = self._sessions[torch.get_num_threads()](arrays)
        return {**features, "token_embeddings": torch.from_numpy(vectors)}


def ensure_graph(transformer: torch.nn.Module, input_names: Sequence[str], place: str, commit: str) -> Path:
    """Returns the file of a model's graph: the one in its folder, or else one that is exported once and cached.

    Args:
        transformer: in float32.
        input_names: the features that its tokenizer makes.
        place: the folder of the model's files, or its name on the hub.
        commit: of the hub.

    Raises:
        ModelLoadError: there is no graph, and none can be exported or cached.
    """
    shipped = Path(place) / SHIPPED
    if shipped.is_file():
        return shipped
    cache = _cache_folder()
    folder = cache / revision_of(place, f"onnx {commit} {torch.__version__}")
    if (folder / FILE).is_file():  # it was moved there whole: no permission to write is needed
        return folder / FILE
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other engines of this host may export the same graph
            if not folder.is_dir():
                _make(transformer, input_names, folder)
    except OSError as error:
        raise ModelLoadError(
            f"the graph of {place} cannot be cached in {cache} (XDG_CACHE_HOME): {error.strerror}"
        ) from error
    return folder / FILE


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "redbatch" / "onnx"


def _make(transformer: torch.nn.Module, input_names: Sequence[str], folder: Path) -> None:
    log.info("exporting the model's graph, once", folder=str(folder))
    began = time.monotonic()
    partial_folder = folder.with_suffix(".making")
    shutil.rmtree(partial_folder, ignore_errors=True)  # of an engine that was killed
    partial_folder.mkdir()
    try:
        _export(transformer, input_names, partial_folder / FILE)
        partial_folder.rename(folder)
    except ImportError as error:
        raise ModelLoadError(
            f"the model's graph is exported with {error.name}: pip install -e '.[onnx]' in the checkout"
        ) from error
    except OSError:
        raise
    except Exception as error:  # the exporter raises errors of any class
        raise ModelLoadError(
            f"this model cannot be exported as an ONNX graph ({one_line(error)}): use --backend torch"
        ) from error
    finally:
        shutil.rmtree(partial_folder, ignore_errors=True)
    log.info("graph exported", seconds=round(time.monotonic() - began, 1))


class _PositionalTransformer(torch.nn.Module):
    """A transformer as a function of positional tensors, in the order of their names."""

    def __init__(self, transformer: torch.nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self._transformer = transformer
        self._names = list(names)

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Returns the vectors of tokens."""
        vectors: torch.Tensor = self._transformer(**dict(zip(self._names, tensors, strict=True)))[0]
        return vectors


def _export(transformer: torch.nn.Module, input_names: Sequence[str], path: Path) -> None:
    batch = tuple(torch.ones(EXAMPLE, dtype=torch.int64) for _ in input_names)
    dynamic = {0: torch.export.Dim("texts"), 1: torch.export.Dim("tokens")}
    for name in ("torch.onnx", "onnxscript", "onnx_ir"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from the libraries of the exporter
        torch.onnx.export(
            _PositionalTransformer(transformer, input_names).eval(),
            batch,
            path,
            dynamo=True,
            verbose=False,
            input_names=list(input_names),
            output_names=[OUTPUTS[0]],
            dynamic_shapes={"tensors": (dynamic,) * len(batch)},
        )
