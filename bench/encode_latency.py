"""Times `encode` of one text at a time: `python -m bench.encode_latency MODEL MIX`.

Reads a number N per line. For each, it encodes the first N texts one by one, and prints the median time of a text
in ms. Between two lines it waits and uses no CPU. Imports torch.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence

from sentence_transformers import SentenceTransformer

from bench.limit import POOL_TEXTS
from gpuworker.model_spec import parse_model
from redbatch.bench.texts import built_in_texts

WARMUP_TEXTS = 64
SEED = 1


def main(arguments: Sequence[str]) -> None:
    """Reads lines from stdin to its end, and answers each."""
    name, mix = arguments
    transformer = SentenceTransformer(parse_model(name).path)
    texts = [text for (text,) in built_in_texts(mix, SEED, 1)][:POOL_TEXTS]
    transformer.encode(texts[:WARMUP_TEXTS])
    for line in sys.stdin:
        took_ms = []
        for number in range(int(line)):
            began = time.perf_counter()
            transformer.encode(texts[number % POOL_TEXTS])
            took_ms.append(1000 * (time.perf_counter() - began))
        sys.stdout.write(f"{statistics.median(took_ms)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
