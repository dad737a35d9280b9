"""A gateway that asks for keys: who gets in, who does not, and what each is told."""

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
from api.settings import GatewaySettings
from redbatch.up.local_redis import LocalRedis
from shared import api_keys
from shared.api_keys import ApiKey, Scope, digest_of, new_id, new_secret
from shared.connection import QueueConnections, RedisConnection
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

CLOSED = ["/v1/models", "/v1/models/a", "/info", "/docs", "/openapi.json", "/nothing"]
OPEN = ["/health", "/livez", "/readyz", "/ping", "/"]


@pytest_asyncio.fixture
async def connection(own_redis: LocalRedis) -> AsyncIterator[RedisConnection]:
    """A connection to the test's own Redis."""
    queue = QueueConnections(QueueSettings(redis_url=own_redis.url), "any", "test")
    yield queue.connection("keys")
    await queue.close()


async def make(connection: RedisConnection, *scopes: Scope, expires_ms: int | None = None) -> str:
    """Makes a key and returns it."""
    secret = new_secret()
    key = ApiKey(new_id(), digest_of(secret), scopes or ("embed",), "", "", 0, expires_ms)
    await api_keys.add(connection, key)
    return f"{key.key_id}.{secret}"


def embed(gateway: GatewayProcess, key: str | None, path: str = "/embed", body: object = None) -> httpx.Response:
    """Asks for a vector, with a key or without."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return plain_http.post(f"{gateway.url}{path}", json=body or {"text": "a"}, headers=headers, timeout=30)


async def start(cluster: GatewayCluster, **settings: object) -> GatewayProcess:
    """Starts a gateway that asks for keys, and a worker."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(auth="on", **settings), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway


@pytest.mark.timeout(60)
async def test_who_has_no_key_learns_nothing(isolated_cluster: GatewayCluster, connection: RedisConnection) -> None:
    """On every route but those of probes, in the words of whoever asks; a right key opens them all."""
    key = await make(connection)
    gateway = await start(isolated_cluster)
    for path in OPEN:
        assert plain_http.get(f"{gateway.url}{path}").status_code == 200
    for path in CLOSED:
        answer = plain_http.get(f"{gateway.url}{path}")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        opened = plain_http.get(f"{gateway.url}{path}", headers={"x-api-key": key})
        assert opened.status_code == (404 if path in ("/nothing", "/v1/models/a") else 200)
    wrong = [None, "a", f"{key}x", key.partition(".")[0], f".{key.partition('.')[2]}", "x" * 10_000]
    for given in wrong:
        answer = embed(gateway, given)
        assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
    answer = embed(gateway, None, "/embed_all", {"inputs": "a"})
    assert (answer.status_code, answer.json()["error_type"]) == (401, "Validation")
    with openai_at(gateway) as client, pytest.raises(openai.AuthenticationError) as caught:
        client.embeddings.create(model="a", input="a")
    assert caught.value.code == "invalid_api_key"
    with openai_at(gateway).with_options(api_key=key) as client:
        assert client.embeddings.create(model=client.models.list().data[0].id, input="a").data


@pytest.mark.timeout(60)
async def test_a_key_opens_what_it_is_for_as_long_as_it_is_there(
    isolated_cluster: GatewayCluster, connection: RedisConnection
) -> None:
    """Another scope is a 403; one that is revoked, or has expired, opens nothing within two seconds."""
    now_ms = int(time.time() * 1000)
    key, other, old = (
        await make(connection),
        await make(connection, "jobs", "admin"),
        await make(connection, expires_ms=now_ms - 1),
    )
    short = await make(connection, expires_ms=now_ms + 8_000)
    gateway = await start(isolated_cluster)
    assert vector_bytes(embed(gateway, key).json()["embedding"]) == null_vector("a")
    answer = embed(gateway, other)
    assert (answer.status_code, error_of(answer)["code"]) == (403, "forbidden")
    assert "jobs, admin" in error_of(answer)["message"]
    assert embed(gateway, old).status_code == 401
    assert embed(gateway, short).status_code == 200
    await api_keys.remove(connection, key.partition(".")[0])
    await wait_until(lambda: embed(gateway, key).status_code == 401, "it is revoked", timeout_s=3, poll_s=0.2)
    await wait_until(lambda: embed(gateway, short).status_code == 401, "it expires", timeout_s=20, poll_s=0.5)
    logged = gateway.program.output
    assert not any(each.partition(".")[2] in logged for each in (key, other, old, short))


@pytest.mark.timeout(60)
async def test_who_guesses_is_told_to_wait_and_who_knows_is_not(
    isolated_cluster: GatewayCluster, connection: RedisConnection, client: httpx.AsyncClient
) -> None:
    """From the same address: also after what is known of the right key was looked up again, and with one that is new.

    Behind a load balancer all clients have one address.
    """
    key, *others = [await make(connection) for _ in range(4)]
    gateway = await start(isolated_cluster)
    assert embed(gateway, key).status_code == 200

    async def guess() -> int:
        wrong = f"{new_id()}.{new_secret()}"
        answer = await client.post(f"{gateway.url}/embed", json={"text": "a"}, headers={"x-api-key": wrong})
        assert answer.status_code == 401 or int(answer.headers["retry-after"]) == 1
        return answer.status_code

    statuses = await asyncio.gather(*(guess() for _ in range(10 * MAX_FAILURES)))
    assert set(statuses) == {401, 429}
    await asyncio.sleep(CACHE_TTL_S)
    ends = time.monotonic() + 3
    while time.monotonic() < ends:
        assert (await guess(), embed(gateway, key).status_code)[1] == 200
    for other in others:
        await asyncio.gather(*(guess() for _ in range(MAX_FAILURES)))
        assert embed(gateway, other).status_code == 200
    answer = embed(gateway, f"{key.partition('.')[0]}.{new_secret()}")
    assert answer.status_code in (401, 429)


@pytest.mark.timeout(60)
async def test_a_client_with_one_wrong_key_is_in_nobodys_way(
    isolated_cluster: GatewayCluster, connection: RedisConnection
) -> None:
    """It asks again and again; another key of the same address is looked at as ever."""
    gateway = await start_with(isolated_cluster, connection)
    for _ in range(3 * MAX_FAILURES):
        assert embed(gateway, "aa.bb").status_code in (401, 429)
    assert embed(gateway, await make(connection)).status_code == 200


async def start_with(cluster: GatewayCluster, connection: RedisConnection) -> GatewayProcess:
    """Starts a gateway that asks for keys, of which there is one."""
    await make(connection)
    return await start(cluster)


@pytest.mark.timeout(60)
async def test_a_large_body_without_a_key_is_not_read(
    isolated_cluster: GatewayCluster, connection: RedisConnection
) -> None:
    """The answer comes before the body has."""
    await make(connection)
    gateway = await start(isolated_cluster)
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n\r\n"
    answer = exchange_bytes(gateway.port, head + b" " * 100_000)
    assert answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.timeout(90)
async def test_while_redis_is_away_a_known_key_is_told_so(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, connection: RedisConnection
) -> None:
    """And one that is not known is neither let in nor called wrong."""
    key = await make(connection)
    gateway = await start(isolated_cluster, redis_grace_s=0, redis_timeout_s=1)
    assert embed(gateway, key).status_code == 200
    own_redis.stop()
    try:
        await wait_until(lambda: gateway.missing() == ["redis"], "the gateway sees that Redis is away")
        for given in (key, f"{new_id()}.{new_secret()}"):
            answer = embed(gateway, given)
            assert (answer.status_code, error_of(answer)["code"]) == (503, "redis_unreachable")
    finally:
        own_redis.start()


@pytest.mark.timeout(90)
async def test_while_redis_hangs_everybody_has_an_answer_in_time(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, connection: RedisConnection, client: httpx.AsyncClient
) -> None:
    """However many ask at once: nobody waits behind another for what Redis does not say."""
    key = await make(connection)
    gateway = await start(isolated_cluster)
    assert embed(gateway, key).status_code == 200
    process = psutil.Process(own_redis.pid)
    process.suspend()
    try:
        await asyncio.sleep(CACHE_TTL_S)
        began = time.monotonic()

        async def ask(given: str) -> int:
            headers = {"x-api-key": given, "x-timeout-ms": "2000"}
            answer = await client.post(f"{gateway.url}/embed", json={"text": "a"}, headers=headers)
            return answer.status_code

        unknown = [f"{new_id()}.{new_secret()}" for _ in range(MAX_FAILURES // 2)]
        statuses = await asyncio.gather(*(ask(each) for each in [key] * 30 + unknown))
        took_s = time.monotonic() - began
    finally:
        process.resume()
    assert set(statuses[:30]) <= {503, 504}
    assert set(statuses[30:]) == {503}
    assert took_s < 2 + 2 * LOOKUP_TIMEOUT_S
    await wait_until(lambda: embed(gateway, key).status_code == 200, "Redis is back", timeout_s=20, poll_s=0.2)


@pytest.mark.timeout(60)
async def test_a_known_key_survives_the_loss_of_redis_data(
    isolated_cluster: GatewayCluster, own_redis: LocalRedis, connection: RedisConnection
) -> None:
    """But not its being revoked as the last one."""
    key = await make(connection)
    gateway = await start(isolated_cluster)
    assert embed(gateway, key).status_code == 200
    await connection.call("FLUSHALL")
    ends = time.monotonic() + 2 * CACHE_TTL_S
    while time.monotonic() < ends:
        assert embed(gateway, key).status_code == 200
        await asyncio.sleep(0.1)
    assert embed(gateway, f"{new_id()}.{new_secret()}").status_code == 401
    assert gateway.program.log_records("all API keys are gone from Redis: cached keys stay valid for some minutes")
    again = await make(connection)
    await api_keys.remove(connection, again.partition(".")[0])
    await wait_until(lambda: embed(gateway, key).status_code == 401, "it is revoked", timeout_s=5, poll_s=0.2)


@pytest.mark.timeout(60)
async def test_a_gateway_that_would_let_nobody_in_does_not_start(
    isolated_cluster: GatewayCluster, connection: RedisConnection
) -> None:
    """Unless told so: it says what to do, and ends with the code for what starting again will not mend."""
    env = isolated_cluster.env(auth="auto", host="0.0.0.0")  # noqa: S104 - not a loopback address
    program = await isolated_cluster.processes.start("gateway", "api", env)
    assert await program.wait_until_ended() == 2
    assert "redbatch keys create" in program.output
    gateway = await isolated_cluster.start_gateway(auth="on")
    assert gateway.missing() == ["worker"]
    assert gateway.program.log_records("no API key exists, so no client can connect: run redbatch keys create")
    assert embed(gateway, f"{new_id()}.{new_secret()}").status_code == 401
    assert embed(gateway, await make(connection)).status_code == 503, "the key opens, and there is no worker"


async def test_who_is_asked_for_a_key(connection: RedisConnection) -> None:
    """By default whoever could come from elsewhere; an expired key is none."""
    elsewhere, told = GatewaySettings(host="10.1.2.3"), GatewaySettings(auth="on")
    assert await create_authenticator(GatewaySettings(), connection) is None
    assert await create_authenticator(GatewaySettings(host="10.1.2.3", auth="off"), connection) is None
    await make(connection, expires_ms=1)
    with pytest.raises(NoKeysError, match=r"listens on 10\.1\.2\.3"):
        await create_authenticator(elsewhere, connection)
    assert isinstance(await create_authenticator(told, connection), ApiKeyAuthenticator)
    await make(connection)
    assert isinstance(await create_authenticator(elsewhere, connection), ApiKeyAuthenticator)
    assert isinstance(await create_authenticator(told, connection), ApiKeyAuthenticator)


async def test_a_gateway_starts_while_redis_is_away_and_asks_for_keys(
    own_redis: LocalRedis, connection: RedisConnection
) -> None:
    """Nobody is let in for that."""
    own_redis.stop()
    try:
        assert isinstance(await create_authenticator(GatewaySettings(host="10.1.2.3"), connection), ApiKeyAuthenticator)
    finally:
        own_redis.start()
