"""The field `long_text` of a body, and chunks in an answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field

from shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from api.dialects.request import Span
    from shared.messages import Options

LongText: TypeAlias = Literal["cut", "error", "mean", "chunks"]
CUT, ERROR, MEAN, CHUNKS = ("cut", "error", "mean", "chunks")
IN_CHUNKS = (MEAN, CHUNKS)
LONG_TEXT: Any = Field(
    default=CUT,
    description="What becomes of a text that is too long for the model: it is cut, or an error, or runs in chunks: "
    "mean is the mean of their vectors, weighted by tokens; chunks is a vector for each, with its place in the text.",
)


def with_long_text(options: Options, long_text: LongText, *, partial: bool) -> Options:
    """Returns the options of a request with this field.

    Raises:
        InvalidRequestError: some inputs may fail, and chunks of others be missing; or the client sets the maximum
            tokens of a text.
    """
    if partial and long_text in IN_CHUNKS:
        raise InvalidRequestError(
            "on_error: null does not go with chunks: leave it or long_text out.", param="on_error"
        )
    if options.max_tokens is not None and long_text in IN_CHUNKS:
        message = "truncate_prompt_tokens: it does not go with chunks: leave it or long_text out."
        raise InvalidRequestError(message, param="truncate_prompt_tokens")
    return options._replace(truncate="no") if long_text == ERROR else options


def chunks_of(spans: Sequence[Sequence[Span]], rows: Sequence[Any] | NDArray[Any]) -> list[list[dict[str, Any]]]:
    """Returns for each text its chunks: where each begins and ends, in characters, and its vector."""
    following = iter(rows)
    return [
        [{"start": each.start, "end": each.stop, "embedding": row} for each, row in zip(own, following, strict=False)]
        for own in spans
    ]
