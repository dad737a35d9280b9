"""ONNX Runtime and OpenVINO, which run a graph on a CPU. Neither is imported before it is chosen."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuworker.backends.onnx_transformer import OUTPUTS
from gpuworker.model_spec import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from gpuworker.backends.onnx_transformer import Session

PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}


class Cores(NamedTuple):
    """The number of cores of the engine, and of those on which one batch runs while others run on the rest."""

    total: int
    per_batch: int

    @property
    def batches(self) -> int:
        """The number of batches that run at once."""
        return max(1, self.total // self.per_batch)


def load_onnx(path: Path, cores: Cores, dtype: str) -> Session:
    """Returns a session of ONNX Runtime. The calling thread does the work, together with a few helper threads.

    Raises:
        ModelLoadError: it is not installed, or the format is not float32.
        Exception: it cannot read the file.
    """
    try:
        import onnxruntime  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ModelLoadError("--backend onnx is an extra: pip install -e '.[onnx]' in the checkout") from error
    if dtype != "float32":
        raise ModelLoadError("--backend onnx computes in float32: for another --dtype use torch or openvino")
    options = onnxruntime.SessionOptions()
    # The pool counts one caller of the `batches` callers that run at once.
    options.intra_op_num_threads = cores.total - cores.batches + 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that spin would take the cores from other batches.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    output = _output([each.name for each in session.get_outputs()])

    def run(features: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = session.run([output], {name: features[name] for name in names})[0]
        return vectors.astype(np.float32, copy=False)

    return run


def load_openvino(path: Path, cores: Cores, dtype: str) -> Session:
    """Returns a session of OpenVINO, which has separate threads for each batch that runs at once.

    Raises:
        ModelLoadError: it is not installed, or it does not have this format.
        Exception: it cannot read the file.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # on import, it sends telemetry
    try:
        import openvino  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ModelLoadError("--backend openvino is an extra: pip install -e '.[openvino]' in the checkout") from error
    if dtype not in PRECISIONS:
        raise ModelLoadError(f"--backend openvino computes in float32 or bfloat16, not in {dtype}")
    settings: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": cores.total,
        "NUM_STREAMS": cores.batches,
        "INFERENCE_PRECISION_HINT": PRECISIONS[dtype],  # its default is bfloat16 where the CPU has it
        "ENABLE_CPU_PINNING": False,  # each process would pin the same cores first
    }
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    names = [each.get_any_name() for each in compiled.inputs]
    output = _output([each.get_any_name() for each in compiled.outputs])
    local = threading.local()

    def run(features: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        if not hasattr(local, "request"):
            local.request = compiled.create_infer_request()
        local.request.infer({name: features[name] for name in names}, share_inputs=True)
        vectors: NDArray[np.float32] = local.request.get_tensor(output).data
        return np.array(vectors, dtype=np.float32)  # the next batch of this thread overwrites them

    return run


def _output(names: list[str]) -> str:
    return next((name for name in OUTPUTS if name in names), names[0])


RUNTIMES: Mapping[str, Callable[[Path, Cores, str], Session]] = {"onnx": load_onnx, "openvino": load_openvino}
