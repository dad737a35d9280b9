"""HTTP client of one gateway. It retries after errors that may be temporary; the text of others says what to do."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import httpx

from redbatch.bench.connector import describe_connect_error

REQUEST_TIMEOUT_S, CONNECT_TIMEOUT_S = 60.0, 10.0
MAX_TRIES = 8
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 15.0
MAX_QUOTA_WAIT_S = 3_600.0
LONG_QUOTA_WAIT_S = 5.0
"""A shorter wait for a quota or a full queue is usual under load, and goes without a word."""

RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504)
WRONG_URL_ERRORS = (httpx.ConnectError, httpx.ConnectTimeout, httpx.RemoteProtocolError)
NOT_FOUND = httpx.codes.NOT_FOUND

RESULTS_FULL = "too_many_results"
"""Refused until the user deletes results, or until they expire: to wait in silence would be no help."""

ADVICE = {
    "invalid_api_key": "Give a valid API key with --key or REDBATCH_API_KEY; `redbatch keys create` makes one.",
    "forbidden": "This command needs an API key of scope jobs or embed: `redbatch keys create --scope embed`.",
    "model_not_found": "Choose one of these with --model.",
    "too_large": "Send fewer texts per job with --slice.",
}
"""What to do about an error, by its code."""


class RequestRefusedError(Exception):
    """The gateway refuses the request, or keeps failing; the message says why and what to do."""


class _Failure(NamedTuple):
    """A request without a usable answer.

    `is_quota`: a quota is used up, which is not a failure: `retry_after_s` says when it has room.
    """

    error: RequestRefusedError
    retry_after_s: float = 0.0
    is_permanent: bool = False
    is_quota: bool = False


class GatewayClient:
    """Sends requests to one gateway.

    Args:
        client: has the URL of the gateway as its base URL, and the headers of every request.
        notify: called with why requests wait to be sent again, when the first one does, and when the last one ends.

    Attributes:
        url: the URL of the gateway, without a slash at its end.
    """

    def __init__(self, client: httpx.AsyncClient, notify: Callable[[str], None] = lambda _text: None) -> None:
        self._client, self._notify = client, notify
        self._num_waiting = 0
        self.url = str(client.base_url).rstrip("/")
        self._was_connected = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        allowed: Collection[int | str] = (),
        timeout_s: float = REQUEST_TIMEOUT_S,
        **options: Any,  # noqa: ANN401 - those of httpx
    ) -> httpx.Response:
        """Returns an answer that is a success or has an `allowed` status or code; retries after a temporary error.

        Raises RequestRefusedError for a permanent error, or after MAX_TRIES; at once if nothing has answered yet,
        because the URL may be wrong.
        """
        pause_s, left, waits, is_answered = FIRST_PAUSE_S, MAX_TRIES, False, False
        try:
            while True:
                outcome = await self._send(method, path, allowed, timeout_s, options)
                if isinstance(outcome, httpx.Response):
                    is_answered = True
                    return outcome
                left -= not outcome.is_quota
                if outcome.is_permanent or not left:
                    raise outcome.error
                wait_s = max(pause_s, outcome.retry_after_s)
                if not waits and (not outcome.is_quota or wait_s >= LONG_QUOTA_WAIT_S):
                    waits = True
                    self._begin_wait(outcome.error)
                await asyncio.sleep(wait_s if outcome.is_quota else min(wait_s, MAX_PAUSE_S))
                pause_s *= 1 if outcome.is_quota else 2
        finally:
            if waits:
                self._end_wait(is_answered=is_answered)

    def _begin_wait(self, error: RequestRefusedError) -> None:
        if not self._num_waiting:
            self._notify(f"{str(error).rstrip('.')}. Requests wait, to be sent again.")
        self._num_waiting += 1

    def _end_wait(self, *, is_answered: bool) -> None:
        self._num_waiting -= 1
        if not self._num_waiting and is_answered:
            self._notify(f"{self.url}: requests are answered again.")

    async def _send(
        self, method: str, path: str, allowed: Collection[int | str], timeout_s: float, options: Mapping[str, Any]
    ) -> httpx.Response | _Failure:
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            answer = await self._client.request(method, path, timeout=timeout, **options)
        except httpx.TransportError as error:
            if isinstance(error, WRONG_URL_ERRORS) and not self._was_connected:
                return _Failure(self._not_connected(error), is_permanent=True)
            return _Failure(RequestRefusedError(f"{self.url}: {type(error).__name__} {error}".strip()))
        self._was_connected = True
        if answer.is_success or answer.status_code in allowed or error_of(answer)[0] in allowed:
            return answer
        retry_after_s = float(answer.headers.get("retry-after", 0))
        is_overloaded = answer.status_code == httpx.codes.TOO_MANY_REQUESTS and retry_after_s <= MAX_QUOTA_WAIT_S
        is_quota = is_overloaded and error_of(answer)[0] != RESULTS_FULL
        is_permanent = answer.status_code not in RETRY_STATUSES
        return _Failure(self.refusal(answer), retry_after_s, is_permanent, is_quota)

    def _not_connected(self, error: Exception) -> RequestRefusedError:
        reason = _reason_of(error)
        return RequestRefusedError(
            f"{self.url}: no gateway answers at this address ({reason}). Start a cluster with `redbatch up` (in a "
            "checkout: `make run`), or give the URL of a running gateway with --url."
        )

    def refusal(self, answer: httpx.Response) -> RequestRefusedError:
        """Returns the error for an answer that cannot be used: what it says, and what to do."""
        code, message = error_of(answer)
        if code in ("", "not_found") and answer.status_code not in RETRY_STATUSES:
            to = f", and redirects to {answer.headers['location']}" if "location" in answer.headers else ""
            return RequestRefusedError(
                f"{self.url} answers {answer.status_code}{to}: that is no gateway of Redbatch. "
                "Give the URL of a gateway without a route with --url, as http://127.0.0.1:8080."
            )
        text = f"{answer.status_code} {code}: {message}" if code else f"{answer.status_code} {answer.text[:200]}"
        return RequestRefusedError(f"{self.url}: {text} {ADVICE.get(code, '')}".rstrip())


def _reason_of(error: BaseException) -> str:
    """Returns why there is no connection, in the system's words; its causes are behind those of the library."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLCertVerificationError):
            return "it does not speak TLS: write http://"
        if isinstance(cause, OSError) and (isinstance(cause, socket.gaierror) or cause.errno):
            return describe_connect_error(cause)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def error_of(answer: httpx.Response) -> tuple[str, str]:
    """Returns code and message of the error in an answer; ("", "") if it has none, as that of another server."""
    try:
        error = answer.json()["error"]
        return str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return "", ""
