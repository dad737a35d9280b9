"""The log lines of requests: who sent what to which route, how it ended, and nothing that the client wrote."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from api.routes import route_hint
from redbatch.readiness import fetch_missing_parts
from shared import api_keys
from shared.api_keys import Scope, new_key
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, exchange_bytes, log_lines
from tests.processes import Program
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.timeout(90)]

MARK = "zqxjv-marker"
EMPTY = "texts is empty: send at least one text."
OUTCOMES = ("request refused", "request failed", "request served", "client left")


BODIES_WITH_MARK: dict[str, list[dict[str, Any]]] = {
    "/embed": [
        {MARK: 1, "text": "a"},
        {"text": {MARK: 1}},
        {"text": "a", "model": MARK},
        {"text": "a", "prompt_name": MARK},
    ],
    "/v1/embeddings": [
        {"input": MARK, "model": MARK},
        {"input": "a", "encoding_format": MARK},
        {"input": {MARK: MARK}},
    ],
    "/predict": [{"input": MARK}, {"inputs": MARK}, {"input": {"npy": MARK}}],
    "/jobs": [
        {MARK: 1, "texts": ["a"]},
        {"texts": [MARK], "priority": MARK},
        {"texts": [1, MARK]},
        {"input": MARK},
    ],
    "/embed_all": [{"inputs": {MARK: MARK}}, {"inputs": "a", "prompt_name": MARK}],
    "/similarity": [{"inputs": {"source_sentence": MARK}}],
    f"/{MARK}": [{}],
    f"/jobs/{MARK}": [{}],
}


async def request_lines(gateway: GatewayProcess, expected: int) -> list[dict[str, Any]]:
    """Returns the log lines about requests once there are `expected` ones: an answer may arrive before its line.

    Those of probes, which the tests send too, are left out.
    """

    def lines() -> list[dict[str, Any]]:
        written = [line for line in log_lines(gateway.program) if line["msg"] in OUTCOMES]
        return [line for line in written if line.get("route") not in ("/livez", "/readyz")]

    await wait_until(lambda: len(lines()) >= expected, f"{expected} requests are logged", timeout_s=20)
    return lines()


async def create_key(redis_url: str, tenant: str, *scopes: Scope, lifetime_s: float | None = None) -> str:
    """Creates an API key and returns it."""
    queue = QueueConnections(QueueSettings(redis_url=redis_url), "any", "test")
    key, key_with_secret = new_key(scopes, tenant=tenant, lifetime_s=lifetime_s)
    await api_keys.add(queue.connection("keys"), key)
    await queue.close()
    return key_with_secret


def call(gateway: GatewayProcess, method: str, path: str, key: str = "", body: object = None) -> httpx.Response:
    """Sends a request with an API key, or without."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.request(method, f"{gateway.url}{path}", json=body, headers=headers, timeout=30, trust_env=False)


def refused_requests(key: str, old: str) -> dict[tuple[str, str, str, tuple[str, ...] | None], dict[str, object]]:
    """Returns method, path, key and texts of requests, each with the fields of its line that are its own."""
    known = {"key_id": key.partition(".")[0], "tenant": "team-a"}
    no_key = "Send an API key: Authorization: Bearer <key>, or x-api-key: <key>."
    wrong_key = "This key is unknown, was revoked, or has expired."

    def line(status: int, code: str, message: str, route: str = "", **more: str) -> dict[str, object]:
        return {"status": status, "code": code, "message": message, **({"route": route} if route else {}), **more}

    unauthorized = "invalid_api_key"
    old_id = {"key_id": old.partition(".")[0]}
    forbidden = "This key lacks the scope jobs: its scopes are embed."
    empty, unknown = EMPTY, f"…: {route_hint('/nothing')}"
    return {
        ("POST", "/embed", key, ()): line(400, "invalid_request", empty, "/embed", **known),
        ("POST", "/embed", "", ("a",)): line(401, unauthorized, no_key, "/embed"),
        ("POST", "/batch_embed", f"{MARK}.{MARK}", ("a",)): line(401, unauthorized, wrong_key, "/batch_embed"),
        ("POST", "/v1/embeddings", old, ("a",)): line(401, unauthorized, wrong_key, "/v1/embeddings", **old_id),
        ("POST", "/jobs", key, ("a",)): line(403, "forbidden", forbidden, "/jobs", **known),
        ("GET", f"/jobs/{MARK}", "", None): line(401, unauthorized, no_key, "/jobs/{id}"),
        ("GET", f"/{MARK}", key, None): line(404, "not_found", unknown, "unknown", **known),
        ("DELETE", "/embed", key, None): line(405, "method_not_allowed", "…: use POST.", "/embed", **known),
    }


async def test_a_refused_request_is_one_line_that_says_who_and_why(
    isolated_cluster: GatewayCluster, own_redis: Server
) -> None:
    """Route, method, status, code, message, model, tenant, key, address and time; what is unknown is left out."""
    key = await create_key(own_redis.url, "team-a", "embed")
    old = await create_key(own_redis.url, "team-a", "embed", lifetime_s=-1)
    gateway, _ = await asyncio.gather(isolated_cluster.start_gateway(auth="on"), isolated_cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    requests = refused_requests(key, old)
    for method, path, api_key, texts in requests:
        call(gateway, method, path, api_key, None if texts is None else {"texts": texts})
    lines = await request_lines(gateway, len(requests))
    assert len(lines) == len(requests)
    for line, (request, expected) in zip(lines, requests.items(), strict=True):
        varying = {name: line.pop(name) for name in ("ts", "request_id", "took_ms")}
        assert varying["took_ms"] >= 0
        common = {"level": "info", "msg": "request refused", "service": "gateway", "client": "127.0.0.1"}
        assert line == {**common, "method": request[0], **expected}
    assert MARK not in gateway.program.output


async def test_a_failed_request_is_an_error_with_its_model(cluster: GatewayCluster, fake_heartbeat: None) -> None:
    """A status of 500 or more is the cluster's fault."""
    gateway = await cluster.start_gateway()
    assert gateway.embed({"text": "a"}, x_timeout_ms="100", x_tenant="team-a", x_request_id="r-1").status_code == 504
    [line] = await request_lines(gateway, 1)
    expected = {
        "level": "error",
        "msg": "request failed",
        "status": 504,
        "code": "deadline_exceeded",
        "route": "/embed",
    }
    expected |= {"model": cluster.queue, "tenant": "team-a", "request_id": "r-1", "client": "127.0.0.1"}
    assert expected.items() <= line.items()
    assert line["took_ms"] >= 100


@pytest.mark.parametrize(
    ("trusted", "address"),
    [("127.0.0.0/8", "203.0.113.7"), (None, "127.0.0.1"), ("198.51.100.0/24", "127.0.0.1")],
    ids=["trusted", "no proxy trusted", "another proxy trusted"],
)
async def test_the_address_is_the_client_s_behind_a_trusted_proxy(
    cluster: GatewayCluster, trusted: str | None, address: str
) -> None:
    """Otherwise it is that of the connection: a client may not choose it."""
    gateway = await cluster.start_gateway(trusted_proxies=trusted)
    gateway.embed({"texts": []}, x_forwarded_for="203.0.113.7")
    gateway.embed({"text": 1, "texts": []}, x_forwarded_for=MARK)
    assert (await request_lines(gateway, 1))[0]["client"] == address
    assert MARK not in gateway.program.output


async def counts_of(gateway: GatewayProcess, message: str, expected: int) -> list[dict[str, Any]]:
    """Returns the lines that count this message, once they have `expected`: more than one if a machine is slow."""

    def counts() -> list[dict[str, Any]]:
        return [line for line in log_lines(gateway.program) if line.get("message") == message and "repeated" in line]

    await wait_until(lambda: sum(each["repeated"] for each in counts()) == expected, f"{expected} are counted")
    return counts()


async def test_equal_refusals_are_counted(cluster: GatewayCluster) -> None:
    """The first is a line at once; one more says how many followed, whatever their texts, ids and addresses.

    Those with another message have a separate line; but numbers in messages do not matter.
    """
    gateway = await cluster.start_gateway()
    for number in range(50):
        gateway.embed({"texts": []}, x_request_id=f"r-{number}")
        gateway.embed({"texts": [*["a"] * number, 5]}, x_tenant=f"tenant-{number}")
    first, other, *_ = await request_lines(gateway, 2)
    assert (first["request_id"], first["message"], "repeated" in first) == ("r-0", EMPTY, False)
    assert (other["tenant"], other["message"]) == ("tenant-0", "texts[0]: send a text.")
    common = {"code": "invalid_request", "route": "/embed", "msg": "request refused"}
    for message in (EMPTY, "texts[N]: send a text."):
        for count in await counts_of(gateway, message, 49):
            assert {**common, "message": message}.items() <= count.items()
            assert 0 < count["in_s"] < 20


async def test_the_access_log_has_one_line_for_each_request(cluster: GatewayCluster) -> None:
    """Served and refused ones, none of them left out; and a refused one has all that it has without."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(access_log=True), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    for number in range(3):
        assert gateway.embed({"texts": [MARK]}, x_request_id=f"r-{number}", x_tenant="team-a").status_code == 200
        assert gateway.embed({"texts": []}, x_request_id=f"r-{number}").status_code == 400
    job = plain_http.post(f"{gateway.url}/jobs", json={"texts": ["a"]}).json()
    assert plain_http.get(f"{gateway.url}/jobs/{job['id']}?wait=10").status_code == 200
    for path, status in {"/v1/models": 200, "/openapi.json": 200, f"/docs/static/{MARK}": 404}.items():
        assert plain_http.get(f"{gateway.url}{path}?{MARK}").status_code == status
    assert gateway.embed({"text": MARK, "dimensions": 9_999}).status_code == 400
    *lines, refused_option = await request_lines(gateway, 12)
    assert refused_option["message"] == "dimensions: the vectors of this model have 384, not 9999."
    served = {"level": "info", "msg": "request served", "route": "/embed", "method": "POST", "status": 200}
    served |= {"model": cluster.queue, "tenant": "team-a", "client": "127.0.0.1"}
    refused = {"msg": "request refused", "status": 400, "code": "invalid_request", "route": "/embed"}
    refused |= {"message": "texts is empty: send at least one text."}
    for number in range(3):
        assert {**served, "request_id": f"r-{number}"}.items() <= lines[2 * number].items()
        assert {**refused, "request_id": f"r-{number}"}.items() <= lines[2 * number + 1].items()
    assert [(line["method"], line.get("route"), line["status"]) for line in lines[6:]] == [
        *(("POST", "/jobs", 202), ("GET", "/jobs/{id}", 200), ("GET", "/v1/models", 200)),
        *(("GET", "/openapi.json", 200), ("GET", "/docs/static/{path}", 404)),
    ]
    assert all(line["took_ms"] >= 0 for line in lines)
    assert MARK not in gateway.program.output


async def test_the_access_log_counts_probes_and_hides_none(cluster: GatewayCluster) -> None:
    """While the model loads, `redbatch up` polls /readyz: no error. All are counted, whatever agent they name."""
    gateway = await cluster.start_gateway(access_log=True)
    assert "worker" in (await fetch_missing_parts("127.0.0.1", gateway.port) or ())
    for agent in ("redbatch-up", "anyone"):
        assert plain_http.get(f"{gateway.url}/readyz", headers={"user-agent": agent}).status_code == 503
    assert plain_http.get(f"{gateway.url}/v1/models", headers={"user-agent": "redbatch-up"}).is_success

    def lines(*messages: str) -> list[tuple[str, int]]:
        return [(line["route"], line["status"]) for line in log_lines(gateway.program) if line["msg"] in messages]

    await wait_until(lambda: ("/v1/models", 200) in lines(*OUTCOMES), "the last request is logged")
    assert lines(*OUTCOMES) == [("/v1/models", 200)]
    await gateway.program.stop()
    probes = [line for line in log_lines(gateway.program) if line["msg"] == "probe answered"]
    refused = [line for line in probes if line["route"] == "/readyz"]
    assert [(line["level"], line["status"], line.get("repeated")) for line in refused] == [
        ("info", 503, None),
        ("info", 503, 2),
    ]


async def test_without_it_served_requests_and_probes_write_nothing(served: GatewayProcess) -> None:
    """No line for what went well, nor for health."""

    def lines_of_requests() -> list[dict[str, Any]]:
        """Returns the lines that name a route, without those that count what earlier tests have sent."""
        return [line for line in log_lines(served.program) if "route" in line and "repeated" not in line]

    before = lines_of_requests()
    assert served.embed({"text": "a"}).status_code == 200
    for path in ("/health", "/ping", "/v1/models", "/readyz"):
        assert plain_http.get(f"{served.url}{path}").status_code == 200
    assert lines_of_requests() == before


@pytest.mark.parametrize("access_log", [False, True])
async def test_no_line_has_what_a_client_wrote(cluster: GatewayCluster, access_log: bool) -> None:
    """Wherever it stands: in a text, a field's name, a model's name, a path, a query or a header."""
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(log_level="debug", access_log=access_log, trusted_proxies="127.0.0.0/8"),
        cluster.start_worker(),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    names = ("x-priority", "x-timeout-ms", "idempotency-key", "x-model", "prefer", "content-type", "x-forwarded-for")
    headers: list[dict[str, str]] = [{name: f"{MARK} {MARK}"} for name in (*names, "x-tenant", "x-request-id")]
    for path, values in BODIES_WITH_MARK.items():
        for value in values:
            for each in [*headers, {}, {"prefer": "respond-async"}]:
                plain_http.post(f"{gateway.url}{path}?{MARK}", json=value, headers=each, timeout=30)
    for path in (f"/v1/models/{MARK}", f"/jobs/{MARK}", f"/jobs?wait={MARK}", f"/info?{MARK}"):
        plain_http.get(f"{gateway.url}{path}", headers={"x-model": MARK})
    await request_lines(gateway, 6)
    assert all(MARK not in program.output for program in cluster.processes._all)


async def test_what_is_not_http_and_clients_that_leave_are_lines_too(served: GatewayProcess) -> None:
    """With an address. A flood of the former is one line; uvicorn's own warnings are silent."""
    for _ in range(5):
        assert exchange_bytes(served.port, f"{MARK}\r\n\r\n".encode()).startswith(b"HTTP/1.1 400 ")
    await wait_until(lambda: "invalid_http" in served.program.output, "the first is logged", timeout_s=20)
    [line] = [line for line in await request_lines(served, 1) if line["code"] == "invalid_http"]
    assert (line["client"], line["message"]) == ("127.0.0.1", "Invalid HTTP request received.")
    assert "uvicorn" not in served.program.output
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(
            b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
    await wait_until(lambda: bool(served.program.log_records("client left")), "the departure is logged")
    line = served.program.log_records("client left")[0]
    assert (line["status"], line["level"], line["route"], line["client"]) == (499, "info", "/embed", "127.0.0.1")


async def test_lines_about_redis_name_its_address(isolated_cluster: GatewayCluster, own_redis: Server) -> None:
    """In both processes, and in refused requests; repeated lines are counted."""
    gateway, worker = await asyncio.gather(
        isolated_cluster.start_gateway(redis_grace_s=0), isolated_cluster.start_worker()
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    own_redis.stop()
    await wait_until(lambda: gateway.missing() == ["redis"], "the gateway sees that Redis is gone")
    await wait_until(lambda: bool(worker.log_records("no heartbeat")), "the worker too")
    assert gateway.embed({"text": "a"}, x_timeout_ms="300").status_code == 503
    await wait_until(
        lambda: any("repeated" in each for each in worker.log_records("cannot claim")),
        "repeats are counted",
        timeout_s=20,
    )
    address = f"127.0.0.1:{own_redis.port}"
    for program, messages in (
        (gateway.program, {"gateway starts", "Redis is out of reach", "request failed"}),
        (worker, {"worker starts", "no heartbeat", "cannot claim"}),
    ):
        lines = log_lines(program)
        assert messages <= {line["msg"] for line in lines}
        assert all(line["redis"] == address for line in lines if "Redis" in str(line) or line["msg"] in messages)
    assert sum("repeated" not in each for each in worker.log_records("cannot claim")) <= 4, "one of each reason"
    own_redis.start()
    await wait_until(lambda: gateway.missing() == [], "the gateway serves again", timeout_s=20)
    assert gateway.program.log_records("Redis answers again")[0]["redis"] == address


async def test_lines_about_redis_have_no_password(cluster: GatewayCluster) -> None:
    """Nor a user."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    url = f"redis://{MARK}:{MARK}@127.0.0.1:{port}/0"
    programs: list[Program] = [
        await cluster.processes.start(name, module, cluster.env(redis_url=url, model="null", log_level="debug"))
        for name, module in (("gateway", "api"), ("worker", "gpuworker"))
    ]
    for program in programs:
        await wait_until(
            lambda program=program: any("Redis" in each.get("reason", "") for each in log_lines(program)),  # type: ignore[misc]
            "Redis is missed",
            timeout_s=30,
        )
        assert f"127.0.0.1:{port}" in program.output
        assert MARK not in program.output
