"""The threads of the tokenizers library, which is configured by the environment of its process."""

from __future__ import annotations

import os


def set_tokenizer_threads(threads: int) -> None:
    """Has the library use this many threads for each call of several texts; with 1, only the caller's.

    Variables that the user has set come first. The library reads the first one at each call, and the other one once,
    when a call first needs its threads.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
    if threads > 1:
        os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
