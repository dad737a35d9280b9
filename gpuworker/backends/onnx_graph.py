"""A transformer as an ONNX graph: for the runtimes that read one, in place of torch.

Everything around it stays: the tokenizer before, and behind it the pooling and whatever else a model of
sentence-transformers does with the vectors of tokens.
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
from gpuworker.models import ModelError, one_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Session = Callable[[Mapping[str, NDArray[np.int64]]], NDArray[np.float32]]
    """Runs a graph: from arrays of shape (texts, tokens) by name to one of shape (texts, tokens, dim)."""

log = structlog.get_logger()

FILE = "model.onnx"
SHIPPED = Path("onnx") / FILE
"""Where sentence-transformers keeps a model's graph, in its folder."""

OUTPUTS = ("token_embeddings", "last_hidden_state")
"""The names that a graph may give to its vectors of tokens; otherwise they are its first output."""

EXAMPLE = (2, 7)
"""Texts and tokens of the batch by which a model is followed. Any would do, but for 0 and 1, which are special."""


class Graph(torch.nn.Module):
    """Stands where the transformer stood. As with prepacking, it is the number of torch's threads that chooses.

    Args:
        sessions: by number of threads.
    """

    def __init__(self, sessions: Mapping[int, Session]) -> None:
        super().__init__()
        self._sessions = dict(sessions)

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Adds the vectors of tokens to the features of a batch."""
        arrays = {name: value.numpy() for name, value in features.items() if isinstance(value, torch.Tensor)}
        found = self._sessions[torch.get_num_threads()](arrays)
        return {**features, "token_embeddings": torch.from_numpy(found)}


def graph_of(transformer: torch.nn.Module, inputs: Sequence[str], place: str, commit: str) -> Path:
    """Returns the file of a model's graph: the one in its folder, or else one that is made once and kept.

    Args:
        transformer: in float32.
        inputs: what its tokenizer gives it.
        place: the folder of the model's files, or its name on the hub.
        commit: of the hub.

    Raises:
        ModelError: there is none, and none can be made or kept.
    """
    shipped = Path(place) / SHIPPED
    if shipped.is_file():
        return shipped
    home = _home()
    folder = home / revision_of(place, f"onnx {commit} {torch.__version__}")
    if (folder / FILE).is_file():  # it came there whole: no need to be able to write
        return folder / FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # others of this host may want the same
            if not folder.is_dir():
                _make(transformer, inputs, folder)
    except OSError as error:
        raise ModelError(f"the graph of {place} cannot be kept in {home} (XDG_CACHE_HOME): {error.strerror}") from error
    return folder / FILE


def _home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "redbatch" / "onnx"


def _make(transformer: torch.nn.Module, inputs: Sequence[str], folder: Path) -> None:
    log.info("making the model's graph, once", folder=str(folder))
    began = time.monotonic()
    making = folder.with_suffix(".making")
    shutil.rmtree(making, ignore_errors=True)  # of an engine that was killed
    making.mkdir()
    try:
        _export(transformer, inputs, making / FILE)
        making.rename(folder)
    except ImportError as error:
        raise ModelError(f"the model's graph is made with {error.name}: pip install 'redbatch[onnx]'") from error
    except OSError:
        raise
    except Exception as error:  # the exporter raises whatever it meets
        raise ModelError(f"this model cannot be made an ONNX graph ({one_line(error)}): use torch") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
    log.info("graph made", seconds=round(time.monotonic() - began, 1))


class _Plain(torch.nn.Module):
    """A transformer as a function of tensors, in the order of their names."""

    def __init__(self, transformer: torch.nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self._transformer = transformer
        self._names = list(names)

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Returns the vectors of tokens."""
        found: torch.Tensor = self._transformer(**dict(zip(self._names, tensors, strict=True)))[0]
        return found


def _export(transformer: torch.nn.Module, inputs: Sequence[str], path: Path) -> None:
    batch = tuple(torch.ones(EXAMPLE, dtype=torch.int64) for _ in inputs)
    free = {0: torch.export.Dim("texts"), 1: torch.export.Dim("tokens")}
    for name in ("torch.onnx", "onnxscript", "onnx_ir"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own libraries
        torch.onnx.export(
            _Plain(transformer, inputs).eval(),
            batch,
            path,
            dynamo=True,
            verbose=False,
            input_names=list(inputs),
            output_names=[OUTPUTS[0]],
            dynamic_shapes={"tensors": (free,) * len(batch)},
        )
