"""Prints by how many KiB the peak memory of this process grows while a backend tokenizes pairs with a long query.

Its arguments are the folder of a reranker, the number of documents, and their text.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpuworker.backends.selection import load_backend
from gpuworker.model_spec import parse_model
from shared.messages import Options
from tests.unit.gpuworker.backends.options import OPTIONS

QUERY = "a " * 15_360


def peak_kib() -> int:
    """Returns the peak memory of this process. `getrusage` would count that of its parent, too."""
    [line] = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM:")]
    return int(line.split()[1])


if __name__ == "__main__":
    folder, number, document = sys.argv[1:]
    backend = load_backend(parse_model(folder), OPTIONS)
    before = peak_kib()
    backend.tokenize([document] * int(number), Options(query=QUERY))
    sys.stdout.write(f"{peak_kib() - before}\n")
