"""A gateway with authentication by API keys: which clients are accepted, and the errors of the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import openai
import psutil
import pytest
import pytest_asyncio

from api.http.auth import (
    CACHE_TTL_S,
    LOOKUP_TIMEOUT_S,
    MAX_FAILURES,
    ApiKeyAuthenticator,
    NoKeysError,
    create_authenticator,
)
from api.pages.routes import PAGE_PATHS
from api.settings import GatewaySettings
from redbatch.up.local_redis import LocalRedis
from shared import api_keys
from shared.api_keys import ApiKey, Scope, digest_of, new_id, new_secret
from shared.connection import RedisConnection
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests import plain_http
from tests.integration.clients.test_openai import openai_at
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    exchange_bytes,
    null_vector,
    vector_bytes,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

PROTECTED_PATHS = ["/v1/models", "/v1/models/a", "/info", "/docs/static/redoc.standalone.js", "/nothing"]
OPEN_PATHS = ["/health", "/livez", "/readyz", "/ping", "/", *PAGE_PATHS]


@pytest_asyncio.fixture
async def connection(own_redis: LocalRedis) -> AsyncIterator[RedisConnection]:
    """A connection to `own_redis`."""
    queue = QueueConnections(QueueSettings(redis_url=own_redis.url), "any", "test")
    yield queue.connection("keys")
    await queue.close()


async def create_key(connection: RedisConnection, *scopes: Scope, expires_ms: int | None = None) -> str:
    """Creates an API key and returns it."""
    secret = new_secret()
    key = ApiKey(new_id(), digest_of(secret), scopes or ("embed",), "", "", 0, expires_ms)
    await api_keys.add(connection, key)
    return f"{key.key_id}.{secret}"


def post(gateway: GatewayProcess, key: str | None, path: str = "/embed", body: object = None) -> httpx.Response:
    """Posts a body, with an API key or without."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return plain_http.post(f"{gateway.url}{path}", json=body or {"text": "a"}, headers=headers, timeout=30)


async def accepted_key_that_expires(connection: RedisConnection, gateway: GatewayProcess) -> str:
    """Returns a key that the gateway has accepted, with the shortest life in which this machine can use it."""
    for life_s in (1, 2, 4, 8, 16):
        key = await create_key(connection, expires_ms=int((time.time() + life_s) * 1000))
        if post(gateway, key).status_code == 200:
            return key
    pytest.fail("no key that expires is accepted")


async def start(cluster: GatewayCluster, **settings: object) -> GatewayProcess:
    """Starts a gateway with authentication, and a worker."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(auth="on", **settings), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway


@pytest.mark.timeout(60)
async def test_without_a_valid_key_only_probes_are_answered(
    isolated_cluster: GatewayCluster, connection: RedisConnection
) -> None:
    """All routes but the probes need a valid key, and answer a 401 in the client's dialect without it."""
    key = await create_key(connection)
    gateway = await start(isolated_cluster)
    for path in OPEN_PATHS:
        assert plain_http.get(f"{gateway.url}{path}").status_code == 200
    for path in PROTECTED_PATHS:
        answer = plain_http.get(f"{gateway.url}{path}")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        with_key = plain_http.get(f"{gateway.url}{path}", headers={"x-api-key": key})
        assert with_key.status_code == (404 if path in ("/nothing", "/v1/models/a") else 200)
    wrong = [None, "a", f"{key}x", key.partition(".")[0], f".{key.partition('.')[2]}", "x" * 10_000]
    for api_key in wrong:
        answer = post(gateway, api_key)
        assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
    answer = post(gateway, None, "/embed_all", {"inputs": "a"})
    assert (answer.status_code, answer.json()["error_type"]) == (401, "Validation")
    with openai_at(gateway) as client, pytest.raises(openai.AuthenticationError) as caught:
        client.embeddings.create(model="a", input="a")
    assert caught.value.code == "invalid_api_key"
    with openai_at(gateway).with_options(api_key=key) as client:
        assert client.embeddings.create(model=client.models.list().data[0].id, input="a").data


@pytest.mark.timeout(60)
def test_a_gateway_that_requires_no_key_ignores_keys(served: GatewayProcess) -> None:
    """As docs/api.md says: clients may keep sending one, in either header."""
    for headers in ({"authorization": "Bearer no-key"}, {"x-api-key": "no-key"}):
        assert plain_http.post(f"{served.url}/embed", json={"text": "a"}, headers=headers).status_code == 200


async def test_scopes_expiry_and_revocation_of_a_key(
    isolated_cluster: GatewayCluster, connection: RedisConnection
) -> None:
    """A key without the scope gets a 403; a revoked key gets a 401 within seconds, and so does one that expires."""
    now_ms = int(time.time() * 1000)
    key, other, admin, old = (
        await create_key(connection),
        await create_key(connection, "jobs"),
        await create_key(connection, "admin"),
        await create_key(connection, expires_ms=now_ms - 1),
    )
    gateway = await start(isolated_cluster)
    assert vector_bytes(post(gateway, key).json()["embedding"]) == null_vector("a")
    answer = post(gateway, other)
    assert (answer.status_code, error_of(answer)["code"]) == (403, "forbidden")
    assert "its scopes are jobs." in error_of(answer)["message"]
    assert post(gateway, old).status_code == 401
    usage = [plain_http.get(f"{gateway.url}/usage", headers={"x-api-key": each}) for each in (key, admin)]
    assert [each.status_code for each in (*usage, post(gateway, admin))] == [403, 200, 403]
    state_url = f"{gateway.url}/console/state"
    states = [plain_http.get(state_url, headers={"x-api-key": each}) for each in (old, key, admin)]
    assert [each.status_code for each in (plain_http.get(state_url), *states)] == [401, 401, 403, 200]
    assert error_of(states[1])["code"] == "forbidden"
    assert [each.headers.get("connection") for each in states] == ["close", None, None]
    key_id, other_id, admin_id = (each.partition(".")[0] for each in (key, other, admin))

    def num_keys() -> dict[str, int]:
        answer = plain_http.get(f"{gateway.url}/console/tenants", headers={"x-api-key": admin})
        return {row["tenant"]: row["keys"] for row in answer.json()["tenants"] if row["tenant"] != admin_id}

    assert num_keys() == {key_id: 1, other_id: 1}
    short = await accepted_key_that_expires(connection, gateway)
    await api_keys.remove(connection, key.partition(".")[0])
    await wait_until(lambda: post(gateway, key).status_code == 401, "the key is revoked", timeout_s=20, poll_s=0.2)
    await wait_until(lambda: post(gateway, short).status_code == 401, "the key has expired", timeout_s=20, poll_s=0.5)
    expected = {key_id: 0, other_id: 1, short.partition(".")[0]: 0}  # the first and the last have used something
    await wait_until(lambda: num_keys() == expected, "they do not count any more", timeout_s=20, poll_s=0.5)
    output = gateway.program.output
    assert not any(each.partition(".")[2] in output for each in (key, other, old, short))


@pytest.mark.timeout(60)
async def test_a_preference_for_a_job_needs_the_scope_of_what_follows(
    isolated_cluster: GatewayCluster, connection: RedisConnection
) -> None:
    """Pairs are never jobs: their routes ignore the preference, and so does a route whose body decides that it is one.

    A key for jobs alone runs no request, and one that cannot create jobs may still send the preference for pairs.
    """
    embeds, creates = await create_key(connection), await create_key(connection, "jobs")
    gateway = await start(isolated_cluster)
    pairs = {"query": "a", "texts": ["b"], "documents": ["b"], "text_1": "a", "text_2": "b"}

    def status(key: str, path: str, *fields: str) -> int:
        body = {each: pairs[each] for each in fields} or {"inputs": "a"}
        headers = {"x-api-key": key, "prefer": "respond-async"}
        return plain_http.post(f"{gateway.url}{path}", json=body, headers=headers, timeout=30).status_code

    for path, fields in (
        ("/rerank", ("query", "texts")),
        ("/v1/rerank", ("query", "documents")),
        ("/score", ("text_1", "text_2")),
    ):
        assert (status(embeds, path, *fields), status(creates, path, *fields)) == (200, 403), path
    assert (status(embeds, "/embed"), status(creates, "/embed")) == (403, 202)
    assert (status(creates, "/"), status(creates, "/", "query", "texts")) == (202, 403)


@pytest.mark.timeout(60)
async def test_guesses_of_keys_are_limited_and_valid_keys_are_not(
    isolated_cluster: GatewayCluster, connection: RedisConnection, client: httpx.AsyncClient
) -> None:
    """Guesses get a 429; a valid key of the same address does not, also after its cache entry expired, or if it is new.

    Behind a load balancer all clients have the same address.
    """
    key, *others = [await create_key(connection) for _ in range(4)]
    gateway = await start(isolated_cluster)
    assert post(gateway, key).status_code == 200

    async def guess() -> int:
        wrong = f"{new_id()}.{new_secret()}"
        answer = await client.post(f"{gateway.url}/embed", json={"text": "a"}, headers={"x-api-key": wrong})
        assert answer.status_code == 401 or int(answer.headers["retry-after"]) == 1
        return answer.status_code

    statuses = await asyncio.gather(*(guess() for _ in range(10 * MAX_FAILURES)))
    assert set(statuses) == {401, 429}
    await asyncio.sleep(CACHE_TTL_S)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        assert (await guess(), post(gateway, key).status_code)[1] == 200
    for other in others:
        await asyncio.gather(*(guess() for _ in range(MAX_FAILURES)))
        assert post(gateway, other).status_code == 200
    answer = post(gateway, f"{key.partition('.')[0]}.{new_secret()}")
    assert answer.status_code in (401, 429)


@pytest.mark.timeout(60)
async def test_a_client_that_repeats_a_wrong_key_delays_no_other(
    isolated_cluster: GatewayCluster, connection: RedisConnection
) -> None:
    """If a client repeats a wrong key, another key of the same address is still accepted."""
    gateway = await start_with(isolated_cluster, connection)
    for _ in range(3 * MAX_FAILURES):
        assert post(gateway, "aa.bb").status_code in (401, 429)
    assert post(gateway, await create_key(connection)).status_code == 200


async def start_with(cluster: GatewayCluster, connection: RedisConnection) -> GatewayProcess:
    """Starts a gateway with authentication, after creating a key."""
    await create_key(connection)
    return await start(cluster)


@pytest.mark.timeout(60)
async def test_a_large_body_without_a_key_is_not_read(
    isolated_cluster: GatewayCluster, connection: RedisConnection
) -> None:
    """The 401 is sent before the body has arrived."""
    await create_key(connection)
    gateway = await start(isolated_cluster)
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n\r\n"
    answer = exchange_bytes(gateway.port, head + b" " * 100_000)
    assert answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.timeout(90)
async def test_without_redis_all_keys_get_redis_unreachable(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, connection: RedisConnection
) -> None:
    """Without Redis a valid key gets redis_unreachable; an unknown key is neither accepted nor called invalid."""
    key = await create_key(connection)
    gateway = await start(isolated_cluster, redis_grace_s=0, redis_timeout_s=10)
    assert post(gateway, key).status_code == 200
    own_redis.stop()
    try:
        await wait_until(lambda: gateway.missing() == ["redis"], "the gateway sees that Redis is unreachable")
        for api_key in (key, f"{new_id()}.{new_secret()}"):
            answer = post(gateway, api_key)
            assert (answer.status_code, error_of(answer)["code"]) == (503, "redis_unreachable")
    finally:
        own_redis.start()


@pytest.mark.timeout(90)
async def test_while_redis_hangs_all_requests_are_answered_in_time(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, connection: RedisConnection, client: httpx.AsyncClient
) -> None:
    """While Redis hangs, concurrent requests do not wait for each other's look-ups of keys."""
    key = await create_key(connection)
    gateway = await start(isolated_cluster)
    assert post(gateway, key).status_code == 200
    process = psutil.Process(own_redis.pid)
    process.suspend()
    try:
        await asyncio.sleep(CACHE_TTL_S)
        sent_at = time.monotonic()

        async def send(api_key: str) -> int:
            headers = {"x-api-key": api_key, "x-timeout-ms": "2000"}
            answer = await client.post(f"{gateway.url}/embed", json={"text": "a"}, headers=headers)
            return answer.status_code

        unknown = [f"{new_id()}.{new_secret()}" for _ in range(MAX_FAILURES // 2)]
        statuses = await asyncio.gather(*(send(each) for each in [key] * 30 + unknown))
        took_s = time.monotonic() - sent_at
    finally:
        process.resume()
    assert set(statuses[:30]) <= {503, 504}
    assert set(statuses[30:]) == {503}
    assert took_s < len(unknown) * LOOKUP_TIMEOUT_S, "they waited for each other"
    await wait_until(lambda: post(gateway, key).status_code == 200, "Redis is back", timeout_s=20, poll_s=0.2)


@pytest.mark.timeout(60)
async def test_a_known_key_survives_the_loss_of_redis_data(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, connection: RedisConnection
) -> None:
    """A known key stays valid after a loss of all data, but not after the revocation of the last key."""
    key = await create_key(connection)
    gateway = await start(isolated_cluster)
    assert post(gateway, key).status_code == 200
    await connection.call("FLUSHALL")
    until = time.monotonic() + 2 * CACHE_TTL_S
    while time.monotonic() < until:
        assert post(gateway, key).status_code == 200
        await asyncio.sleep(0.1)
    assert post(gateway, f"{new_id()}.{new_secret()}").status_code == 401
    assert gateway.program.log_records("all API keys are gone from Redis: cached keys stay valid for some minutes")
    new_key = await create_key(connection)
    await api_keys.remove(connection, new_key.partition(".")[0])
    await wait_until(lambda: post(gateway, key).status_code == 401, "the key is revoked", timeout_s=20, poll_s=0.2)


@pytest.mark.timeout(60)
async def test_a_public_gateway_without_keys_does_not_start(
    isolated_cluster: GatewayCluster, connection: RedisConnection
) -> None:
    """With auth=auto a public gateway without keys ends with exit code 2 (a restart does not help) and says what to do.

    With auth=on it starts.
    """
    env = isolated_cluster.env(auth="auto", host="0.0.0.0")  # noqa: S104 - not a loopback address
    program = await isolated_cluster.processes.start("gateway", "api", env)
    assert await program.wait_until_ended() == 2
    assert "redbatch keys create" in program.output
    gateway = await isolated_cluster.start_gateway(auth="on")
    assert gateway.missing() == ["worker"]
    assert gateway.program.log_records("no API key exists, so no client can connect: run redbatch keys create")
    assert post(gateway, f"{new_id()}.{new_secret()}").status_code == 401
    assert post(gateway, await create_key(connection)).status_code == 503, "the new key is not accepted"


async def test_when_authentication_is_on(connection: RedisConnection) -> None:
    """By default a gateway that listens on another address than loopback needs keys; expired keys do not count."""
    public, always = GatewaySettings(host="10.1.2.3"), GatewaySettings(auth="on")
    assert await create_authenticator(GatewaySettings(), [connection]) is None
    assert await create_authenticator(GatewaySettings(host="10.1.2.3", auth="off"), [connection]) is None
    await create_key(connection, expires_ms=1)
    with pytest.raises(NoKeysError, match=r"listens on 10\.1\.2\.3"):
        await create_authenticator(public, [connection])
    assert isinstance(await create_authenticator(always, [connection]), ApiKeyAuthenticator)
    await create_key(connection)
    assert isinstance(await create_authenticator(public, [connection]), ApiKeyAuthenticator)
    assert isinstance(await create_authenticator(always, [connection]), ApiKeyAuthenticator)


async def test_authentication_is_on_if_redis_is_unreachable_at_the_start(
    own_redis: LocalRedis, connection: RedisConnection
) -> None:
    """A public gateway that starts without Redis has authentication, so it accepts no request without a key."""
    own_redis.stop()
    try:
        assert isinstance(
            await create_authenticator(GatewaySettings(host="10.1.2.3"), [connection]), ApiKeyAuthenticator
        )
    finally:
        own_redis.start()


async def test_a_request_that_becomes_a_job_needs_the_scope_jobs(
    isolated_cluster: GatewayCluster, connection: RedisConnection
) -> None:
    """With Prefer: respond-async the scope embed gets a 403, and the scope jobs a job that this key alone may read."""
    embed, jobs = await create_key(connection, "embed"), await create_key(connection, "jobs")
    gateway = await start(isolated_cluster)

    def post_async(key: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}", "prefer": "respond-async"}
        return plain_http.post(f"{gateway.url}/embed", json={"text": "a"}, headers=headers)

    refused = post_async(embed)
    assert (refused.status_code, error_of(refused)["code"]) == (403, "forbidden")
    accepted = post_async(jobs)
    assert accepted.status_code == 202
    url = gateway.url + accepted.headers["location"]
    assert plain_http.get(url, headers={"authorization": f"Bearer {jobs}"}).status_code == 200
    assert plain_http.get(url, headers={"authorization": f"Bearer {embed}"}).status_code == 403
