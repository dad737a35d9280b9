"""ONNX Runtime and OpenVINO on a CPU: what runs a graph. Neither is imported before it is chosen."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuworker.backends.onnx_graph import OUTPUTS
from gpuworker.models import ModelError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from gpuworker.backends.onnx_graph import Session

PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}


class Cores(NamedTuple):
    """The cores of the engine, and on how many a batch runs while others run on the rest."""

    all: int
    each: int

    @property
    def batches(self) -> int:
        """How many run at once."""
        return max(1, self.all // self.each)


def load_onnx(path: Path, cores: Cores, dtype: str) -> Session:
    """Returns a session of ONNX Runtime: whoever calls it does the work, and helpers of which there are few.

    Raises:
        ModelError: it is not installed, the file is none of its, or this is another format than float32.
    """
    try:
        import onnxruntime  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ModelError("--backend onnx is an extra: pip install 'redbatch[onnx]'") from error
    if dtype != "float32":
        raise ModelError("--backend onnx computes in float32: for another --dtype take torch or openvino")
    options = onnxruntime.SessionOptions()
    # A pool counts one caller; as many others call it as batches run at once.
    options.intra_op_num_threads = cores.all - cores.batches + 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # it would take the cores from others
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    output = _output([each.name for each in session.get_outputs()])

    def run(features: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = session.run([output], {name: features[name] for name in names})[0]
        return found.astype(np.float32, copy=False)

    return run


def load_openvino(path: Path, cores: Cores, dtype: str) -> Session:
    """Returns a session of OpenVINO, which has threads of its own for each batch that runs at once.

    Raises:
        ModelError: it is not installed, the file is none of its, or it does not know this format.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # imported, it calls home
    try:
        import openvino  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ModelError("--backend openvino is an extra: pip install 'redbatch[openvino]'") from error
    if dtype not in PRECISIONS:
        raise ModelError(f"--backend openvino computes in float32 or bfloat16, not in {dtype}")
    settings: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": cores.all,
        "NUM_STREAMS": cores.batches,
        "INFERENCE_PRECISION_HINT": PRECISIONS[dtype],  # by itself it takes bfloat16 where the CPU has it
        "ENABLE_CPU_PINNING": False,  # each process would take the same cores first
    }
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    names = [each.get_any_name() for each in compiled.inputs]
    output = _output([each.get_any_name() for each in compiled.outputs])
    mine = threading.local()

    def run(features: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        if not hasattr(mine, "request"):
            mine.request = compiled.create_infer_request()
        mine.request.infer({name: features[name] for name in names}, share_inputs=True)
        found: NDArray[np.float32] = mine.request.get_tensor(output).data
        return np.array(found, dtype=np.float32)  # the next batch of this thread is written to the same place

    return run


def _output(names: list[str]) -> str:
    return next((name for name in OUTPUTS if name in names), names[0])


RUNTIMES: Mapping[str, Callable[[Path, Cores, str], Session]] = {"onnx": load_onnx, "openvino": load_openvino}
