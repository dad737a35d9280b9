"""The HTTP client of a gateway: which answers it retries, and what its errors say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from redbatch.embed import gateway_client
from redbatch.embed.gateway_client import MAX_PAUSE_S, MAX_QUOTA_WAIT_S, MAX_TRIES, GatewayClient, RequestRefusedError

Outcome = httpx.Response | httpx.TransportError


def refusal(status: int, code: str, retry_after: float | None = None) -> httpx.Response:
    """Returns an error of a gateway."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    body = {"error": {"code": code, "message": "no", "request_id": "r"}}
    return httpx.Response(status, json=body, headers=headers)


OK = httpx.Response(200, json={})
FULL = refusal(429, "rate_limited", 300)
AWAY = refusal(503, "unavailable")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses (s) between tries, none of which is made."""
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(seconds)

    monkeypatch.setattr(gateway_client.asyncio, "sleep", sleep)  # type: ignore[attr-defined]
    return taken


def send(*outcomes: Outcome, notes: list[str] | None = None) -> list[Outcome]:
    """Sends a request that has these outcomes in turn; returns those not needed. Notes what the client says."""
    left: Iterator[Outcome] = iter(outcomes)

    def handle(_: httpx.Request) -> httpx.Response:
        outcome = next(left)
        if isinstance(outcome, httpx.TransportError):
            raise outcome
        return outcome

    async def request() -> None:
        transport = httpx.MockTransport(handle)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            await GatewayClient(client, ([] if notes is None else notes).append).request("GET", "/jobs/a")

    asyncio.run(request())
    return list(left)


def test_temporary_errors_are_retried(pauses: list[float]) -> None:
    """Each pause is longer than the one before, up to MAX_PAUSE_S; after MAX_TRIES the last error is raised."""
    assert send(AWAY, httpx.ReadTimeout(""), AWAY, OK) == []
    assert pauses == [0.5, 1.0, 2.0]
    with pytest.raises(RequestRefusedError, match="503 unavailable: no"):
        send(*[AWAY] * MAX_TRIES, OK)
    assert max(pauses) == MAX_PAUSE_S


def test_a_quota_is_waited_for_however_often(pauses: list[float]) -> None:
    """A 429 is no failure: the client waits as long as it says, unless that is over MAX_QUOTA_WAIT_S."""
    assert send(*[FULL] * MAX_TRIES * 2, OK) == []
    assert pauses == [300.0] * MAX_TRIES * 2
    with pytest.raises(RequestRefusedError, match="429"):
        send(*[refusal(429, "rate_limited", MAX_QUOTA_WAIT_S + 1)] * MAX_TRIES)


@pytest.mark.parametrize(
    ("outcome", "advice"),
    [
        (
            httpx.ConnectError("refused"),
            "no gateway answers at this address .refused.*`redbatch up`.*`make run`.*--url",
        ),
        (httpx.RemoteProtocolError("not HTTP"), "no gateway answers"),
        (httpx.Response(301, headers={"location": "https://gateway"}), "redirects to https://gateway.*--url"),
        (httpx.Response(404, text="<html>"), "no gateway of Redbatch.*--url"),
        (refusal(404, "not_found"), "no gateway of Redbatch.*--url"),
        (refusal(404, "model_not_found"), "--model"),
        (refusal(401, "invalid_api_key"), "REDBATCH_API_KEY"),
        (refusal(403, "forbidden"), "--scope embed"),
        (refusal(413, "too_large"), "--slice"),
    ],
)
def test_a_permanent_error_says_at_once_what_to_do(pauses: list[float], outcome: Outcome, advice: str) -> None:
    """It is raised without another try."""
    with pytest.raises(RequestRefusedError, match=f"http://gateway.*{advice}"):
        send(outcome)
    assert pauses == []


def test_a_gateway_that_has_answered_may_go_away(pauses: list[float]) -> None:
    """After a first answer, a refused connection is an outage, which is retried."""
    assert send(AWAY, httpx.ConnectError("refused"), OK) == []
    assert len(pauses) == 2


@pytest.mark.usefixtures("pauses")
def test_a_wait_is_announced_once() -> None:
    """With the reason, and with its end; the short waits for a queue that is full are not."""
    notes: list[str] = []
    send(AWAY, httpx.ReadTimeout(""), AWAY, OK, notes=notes)
    answered = "http://gateway: requests are answered again."
    assert notes == ["http://gateway: 503 unavailable: no. Requests wait, to be sent again.", answered]
    notes.clear()
    send(refusal(429, "queue_full", 2), OK, notes=notes)
    assert notes == []
    send(FULL, FULL, OK, notes=notes)
    assert notes == ["http://gateway: 429 rate_limited: no. Requests wait, to be sent again.", answered]


def test_requests_that_wait_together_are_announced_once() -> None:
    """One that is answered meanwhile does not end the wait of the others."""
    notes: list[str] = []
    outage = asyncio.Event()
    waiting: list[float] = []

    def handle(request: httpx.Request) -> httpx.Response:
        return OK if outage.is_set() or request.url.path == "/health" else AWAY

    async def sleep(seconds: float) -> None:
        waiting.append(seconds)
        if len(waiting) == 2:
            await clients[0].request("GET", "/health")
            outage.set()
        await outage.wait()

    clients: list[GatewayClient] = []

    async def request_all() -> None:
        transport = httpx.MockTransport(handle)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            clients.append(client := GatewayClient(http, notes.append))
            await asyncio.gather(client.request("GET", "/jobs/a"), client.request("GET", "/jobs/b"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gateway_client.asyncio, "sleep", sleep)  # type: ignore[attr-defined]
        asyncio.run(request_all())
    assert [note.rpartition(": ")[2] for note in notes] == [
        "no. Requests wait, to be sent again.",
        "requests are answered again.",
    ]
