"""Tracebacks for logs that must not quote what clients sent."""

from __future__ import annotations

import traceback

MAX_FRAMES = 20
MAX_CAUSES = 4


def describe_briefly(error: BaseException) -> str:
    """Returns the frames and the type of an exception, and of those that caused it; without messages and source lines.

    A message may quote an input; a frame names a file, a line and a function.
    """
    chain: list[BaseException] = []
    each: BaseException | None = error
    # By identity: an exception of the user's may compare its fields, and raise.
    while each is not None and not any(each is known for known in chain) and len(chain) < MAX_CAUSES:
        chain.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    parts = [
        f"{type(each).__name__} at\n"
        + "\n".join(
            f"  {frame.filename}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(each.__traceback__)[-MAX_FRAMES:]
        )
        for each in chain
    ]
    return "\ncaused by ".join(parts)
