"""Whether the answers on one connection are right for the bytes that it got."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.fuzz.answers import Answer
from tests.fuzz.framing import End, Framing, Request

SERVER_ERROR, DEADLINE_EXCEEDED, BAD_REQUEST = 500, 504, 400
UNREAD = (414, 431)
"""The statuses of heads that are refused before they are read to the end."""

SENTINEL_ID = b"sentinel"
"""The id of the request that follows all bytes of a case."""

UNPARSED = b"Invalid HTTP request received."
"""The body of the error for bytes that are no HTTP."""

PLAIN = b"text/plain"
"""The media type of the errors that have no id: the bytes were no HTTP, or the range of a static file is malformed."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_-]{1,64}")
_OWN_ID = re.compile(rb"[0-9a-f]{32}")


class WrongAnswerError(AssertionError):
    """The gateway has answered what it must not, or has not answered."""


def check_answers(framing: Framing, answers: Sequence[Answer], *, names_timeout: bool) -> None:
    """Checks the answers of a connection, of which all have arrived.

    No status is a 5xx: Redis and workers are there, and nothing that a client sends may fail. The exception is 504, if
    the bytes name a timeout (`names_timeout`): a client may ask for an answer within 1 ms and not get it.

    Raises:
        WrongAnswerError: there are more answers than requests, one is that of another request, is a server error, or
            follows the last answer of a connection.
    """
    num_requests = len(framing.requests)
    possible = [*framing.requests, framing.next_request] if framing.end in (End.PARTIAL, End.BROKEN) else []
    requests: list[Request | None] = list(possible or framing.requests)
    if len(answers) > len(requests):
        raise WrongAnswerError(f"{len(answers)} answers to {num_requests} requests, then {framing.end.value}")
    for index, (request, answer) in enumerate(zip(requests, answers, strict=False)):
        is_late = answer.status == DEADLINE_EXCEEDED and names_timeout
        if answer.status >= SERVER_ERROR and not is_late:
            raise WrongAnswerError(f"answer {index} is a server error: {answer}")
        if answer.closes and index < len(answers) - 1:
            raise WrongAnswerError(f"answer {index} closes the connection, and another follows")
        if answer.body == UNPARSED and index < num_requests and framing.requests[index].is_plain:
            raise WrongAnswerError(f"answer {index} is the error of what follows its request")
        _check_identity(index, request, answer)
    if framing.end is End.BROKEN and any(each.fields.get(b"x-request-id") == SENTINEL_ID for each in answers):
        raise WrongAnswerError("a request is answered that follows bytes which are no clear request")


def check_complete(framing: Framing, answers: Sequence[Answer]) -> None:
    """Checks that each request is answered, unless an error has closed the connection before.

    Raises:
        WrongAnswerError: one is not, although its form gives no reason to refuse it.
    """
    if len(answers) >= len(framing.requests) or (answers and answers[-1].closes):
        return
    if all(each.is_plain for each in framing.requests):
        raise WrongAnswerError(f"{len(answers)} answers to {len(framing.requests)} requests")


def _check_identity(index: int, request: Request | None, answer: Answer) -> None:
    """Raises WrongAnswerError: an answer is that of another request, or an error has no id."""
    if answer.continues > (request is not None and request.expects_continue):
        raise WrongAnswerError(f"answer {index} follows {answer.continues} times 100 Continue")
    given = request.request_ids if request else ()
    answered = answer.fields.get(b"x-request-id")
    if answered is None:
        is_plain = answer.fields.get(b"content-type", PLAIN).startswith(PLAIN)
        if answer.status >= BAD_REQUEST and not is_plain:
            raise WrongAnswerError(f"answer {index} is an error without an id: {answer}")
        return
    if request is None:  # whose head is malformed, so that its fields are unknown here
        return
    is_own = answer.status in UNREAD or not all(map(_REQUEST_ID.fullmatch, given)) or not given
    if answered not in given and not (is_own and _OWN_ID.fullmatch(answered)):
        raise WrongAnswerError(f"answer {index} has the id {answered!r}, its request {given!r}")
