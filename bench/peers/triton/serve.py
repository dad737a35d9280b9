"""Triton through PyTriton: a C++ server that forms batches, and sends them to the model in this process."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

from bench.peers.models import argument_parser, load
from bench.peers.shared_library import python_libraries

DIMENSION = 384

if __name__ == "__main__":
    options = argument_parser().parse_args()
    os.environ["LD_LIBRARY_PATH"] = python_libraries()
    embed = load(options.model)

    @batch
    def infer(text: Any) -> dict[str, Any]:
        """Returns the vectors of a batch, which has a text in UTF-8 in each row."""
        return {"embedding": embed([each.decode() for each in text[:, 0]])}

    # No gRPC and no metrics: they would need two more free ports.
    triton = Triton(
        config=TritonConfig(http_address="127.0.0.1", http_port=options.port, allow_grpc=False, allow_metrics=False)
    )
    triton.bind(
        "embed",
        infer,
        inputs=[Tensor(name="text", dtype=bytes, shape=(1,))],
        outputs=[Tensor(name="embedding", dtype=np.float32, shape=(DIMENSION,))],
        config=ModelConfig(
            batching=True,
            max_batch_size=options.batch_size,
            batcher=DynamicBatcher(max_queue_delay_microseconds=options.wait_ms * 1000),
        ),
    )
    # PyTriton ends Triton, which then removes its shared memory, after Ctrl-C but not after SIGTERM.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    triton.serve()
