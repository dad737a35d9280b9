"""All attacks on the memory of a gateway at once (F21): it and Redis stay below the maxima in docs/settings.md."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import pytest

from api.memory_bounds import max_memory_bytes
from api.redis_memory_bounds import ClusterSize, max_redis_bytes
from api.settings import GatewaySettings
from tests.chaos.attack import new_tenant, p99_of, probe_livez, request
from tests.chaos.history import Call
from tests.chaos.scenario import Scenario, all_correct
from tests.chaos.test_slow_readers import TEXTS, connect_unread, wait_until_cached
from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.integration.gateway.http_ways import SETTINGS, Way
from tests.unit.api.parse_peak import peak_bytes

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.long, pytest.mark.exclusive, pytest.mark.leaves_anything]

MIB = 2**20
BOUNDS = {
    "max_connections": 1_000,
    "max_heads_bytes": 8 * MIB,
    "max_body_bytes": 2 * MIB,
    "max_v1_body_bytes": 8 * MIB,
    "max_predict_body_bytes": 8 * MIB,
    "max_bodies_bytes": 32 * MIB,
    "max_in_flight_bytes": 32 * MIB,
    "max_unsent_bytes": 32 * MIB,
    "max_connection_unsent_bytes": 32 * MIB,
    "cache_bytes": 50_000_000,
    "max_owed_bytes": 48 * MIB,
    "max_upload_bytes": 32 * MIB,
    "max_result_ratio": 0.01,
    "max_inline_bytes": 0,
    "reply_connections": 2,
}
"""Bounds of the gateway, below the defaults, so that these clients reach them."""

LIFTED_BYTES = 8 * 2**30
LIFTED = ["max_unsent_bytes", "max_bodies_bytes"]
"""Bounds without which the attacks take more memory than the maximum; the others were not lifted one by one."""

REDIS_BYTES = 2 * 2**30
"""maxmemory of Redis: more than all bounds allow, so that it refuses nothing."""

ATTACK_S = 25.0
BODY = 8 * MIB - 64
HELD_BYTES = 30
"""The last bytes of a slow body come one each second."""

NUM_SILENT, NUM_UNREAD = 250, 500
STRANGER, SILENT = "127.0.0.2", "127.0.0.3"
MAX_P99_MS = 1_000.0
"""Generous: the attackers take most of the machine. A gateway that a single attack blocks would take longer."""

ACCEPTED, CLOSED, UNANSWERED = "200", "closed", "unanswered"
"""Outcomes of an attack; the others are the statuses of refusals."""

Attack = Callable[[], Awaitable[bytes]]


async def pieces(data: bytes, *, pause_s: float = 0.0, hold: int = 0) -> AsyncIterator[bytes]:
    """Yields pieces of 64 KiB, all but the last `hold` bytes; with `hold` these follow one by one, each second."""
    for start in range(0, len(data) - hold, 65_536):
        yield data[start : min(start + 65_536, len(data) - hold)]
        await asyncio.sleep(pause_s)
    for at in range(hold):
        yield data[len(data) - hold + at :][:1]
        await asyncio.sleep(1)


async def endless_head(way: Way) -> bytes:
    """A value without an end."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"GET / HTTP/1.1\r\nHost: x\r\na: "
        for _ in range(16):
            yield b"x" * 16_384
            await asyncio.sleep(0)

    return await way.exchange(parts(), STRANGER)


async def send(way: Way, sent: bytes, hold: int = 0) -> bytes:
    """Sends a request, whose last bytes come one by one."""
    return await way.exchange(pieces(sent, hold=hold))


def attacks(way: Way, key: str) -> Iterator[tuple[str, Attack]]:
    """Yields the name of the attack of each client, and the attack, which the client repeats."""
    wide = b'{"model": "minilm", "input": ["' + "\N{GRINNING FACE}".encode() + b"a" * (BODY - 100) + b'"]}'
    numbers = b'{"model": "minilm", "input": [[1' + b",12345678901234" * (BODY // 15 - 10) + b"]]}"
    inputs = json.dumps({"model": "slow", "inputs": ["x" * 3_900_000] * 2}).encode()
    lines = b'"%b"\n' % (b"x" * 100_000) * 80
    v1 = partial(request, "/v1/embeddings", key)
    yield from [("wide text", partial(send, way, v1(wide)))] * 4
    yield from [("numbers", partial(send, way, v1(numbers)))] * 4
    yield from [("slow body", partial(send, way, v1(wide), HELD_BYTES))] * 200
    yield from [("inputs", partial(send, way, request("/predict", key, inputs)))] * 30
    job = request("/jobs", key, lines, "application/x-ndjson")
    yield from [("lines", partial(send, way, job, HELD_BYTES))] * 20
    yield from [("head", partial(endless_head, way))] * 100


async def repeat(attack: Attack, until: float, outcomes: Counter[str]) -> None:
    """Attacks until then, and counts the outcomes."""
    while (left_s := until - time.monotonic()) > 0:
        try:
            async with asyncio.timeout(left_s):
                answer = await attack()
            outcomes[answer[9:12].decode() or CLOSED] += 1
        except TimeoutError:
            outcomes[UNANSWERED] += 1
        except OSError:
            outcomes[CLOSED] += 1
        await asyncio.sleep(0.01)


def connect_silently(gateway: GatewayProcess, stack: contextlib.ExitStack, number: int) -> None:
    """Opens connections on which half a head arrives."""
    head = b"GET / HTTP/1.1\r\n" + b"".join(b"a%d: %b\r\n" % (at, b"v" * 30) for at in range(98))
    for _ in range(number):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 10, (SILENT, 0)))
        with contextlib.suppress(OSError):
            connection.sendall(head)


async def start_gateway(scenario: Scenario, secrets: list[str], bounds: Mapping[str, float]) -> GatewayProcess:
    """Starts the gateway, its workers, and two tenants, and adds their keys to a list. Texts are cached."""
    secrets += [await new_tenant(scenario.cluster.redis_url) for _ in range(2)]
    gateway = await scenario.cluster.start_gateway(**SETTINGS, all_queues=True, **bounds)
    scenario.gateways.append(gateway)
    await scenario.start_worker("null", max_batch_size=256, claim_window=1_024)
    await scenario.start_worker("tests.chaos.slow_function:Slow", queue="slow")
    await scenario.wait_until_worker_seen()
    await wait_until_cached(gateway, x_api_key=secrets[0])
    return gateway


def closed_connections(gateway: GatewayProcess, reason: str) -> int:
    """Returns how many connections the gateway has closed for a reason."""
    return round(gateway.metric(f'redbatch_closed_connections_total{{reason="{reason}"}}'))


def num_refused(outcomes: Counter[str]) -> int:
    """Returns how many attacks were refused or closed."""
    return outcomes.total() - outcomes[ACCEPTED] - outcomes[UNANSWERED]


class Attacked(NamedTuple):
    """What the attacks found: a gateway, its memory before them (bytes), outcomes, and the latencies of /livez (s)."""

    gateway: GatewayProcess
    base_bytes: int
    outcomes: Mapping[str, Counter[str]]
    closed: Mapping[str, int]
    calls: list[Call]
    latencies_s: list[float]


async def attack_all(scenario: Scenario, bounds: Mapping[str, float]) -> Attacked:
    """Attacks a gateway with these bounds in all ways at once, while another tenant calls."""
    secrets = list[str]()
    gateway = await start_gateway(scenario, secrets, bounds)
    base_bytes = peak_bytes(gateway.program.pid)
    cached = request("/embed", secrets[0], json.dumps({"texts": TEXTS}).encode())
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    attacker, other = (Way(gateway.port, api_key=each) for each in secrets)
    async with scenario.load(clients=4, way=other) as calls, probe_livez(gateway) as latencies_s:
        until = time.monotonic() + ATTACK_S
        with contextlib.ExitStack() as stack:
            clients = attacks(attacker, secrets[0])
            running = asyncio.gather(*(repeat(attack, until, outcomes[name]) for name, attack in clients))
            await asyncio.to_thread(connect_silently, gateway, stack, NUM_SILENT)
            for _ in range(NUM_UNREAD):
                stack.enter_context(connect_unread(attacker, cached))
                await asyncio.sleep(ATTACK_S / 2 / NUM_UNREAD)
            await running
            closed = {name: closed_connections(gateway, name) for name in ("head_timeout", "unsent_bytes")}
    return Attacked(gateway, base_bytes, outcomes, closed, calls, latencies_s)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("own_redis", [["--maxmemory", str(REDIS_BYTES)]], indirect=True)
async def test_all_attacks(own_scenario: Scenario) -> None:
    """F21: heads, silence, bodies, numbers, inputs, lines and unread answers, all at once; others lose nothing.

    Each attack is refused or closed at least once.
    """
    gateway, base, outcomes, closed, calls, latencies_s = await attack_all(own_scenario, BOUNDS)
    settings, cluster = GatewaySettings.model_validate(BOUNDS), ClusterSize(1, 2, REDIS_BYTES, max_dead_letters=200)
    peak, maximum = peak_bytes(gateway.program.pid), max_memory_bytes(settings)
    redis_peak = int((await own_scenario.raw.info("memory"))["used_memory_peak"])
    redis_maximum = max_redis_bytes(settings, cluster)
    sizes = {"base": base, "peak": peak, "maximum": maximum, "redis_peak": redis_peak, "redis_maximum": redis_maximum}
    p99_ms = p99_of(latencies_s)
    total = sum(outcomes.values(), Counter[str]())
    found = {"attacks": total.total(), "refused": num_refused(total), **closed, "livez_p99_ms": round(p99_ms)}
    found |= {f"{name}_mb": round(size / 1e6) for name, size in sizes.items()}
    verdict = own_scenario.judge("F21 all attacks at once", calls, **found)
    assert all_correct(verdict)
    assert all(map(num_refused, outcomes.values())), outcomes
    assert all(closed.values()), closed
    assert peak <= maximum
    assert redis_peak <= redis_maximum < REDIS_BYTES
    assert p99_ms <= MAX_P99_MS


@pytest.mark.timeout(180)
@pytest.mark.parametrize("own_redis", [["--maxmemory", str(REDIS_BYTES)]], indirect=True)
@pytest.mark.parametrize("lifted", LIFTED)
async def test_all_attacks_without_a_bound(own_scenario: Scenario, lifted: str) -> None:
    """F21: without one of two bounds, the same attacks take more memory than the maximum: they could exceed it."""
    attacked = await attack_all(own_scenario, BOUNDS | {lifted: LIFTED_BYTES})
    peak, maximum = peak_bytes(attacked.gateway.program.pid), max_memory_bytes(GatewaySettings.model_validate(BOUNDS))
    sizes = {"peak_mb": round(peak / 1e6), "maximum_mb": round(maximum / 1e6)}
    own_scenario.note(f"F21 all attacks at once, without {lifted}", **sizes)
    assert peak > maximum
