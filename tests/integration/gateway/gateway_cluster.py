"""Gateways and workers as real processes, and what their clients need."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import httpx
import numpy as np
import redis

from shared.keys import Keys
from tests import plain_http
from tests.leaks import find_leaks, remove
from tests.processes import Processes, Program

REPEATS = 12


def null_vector(text: str) -> bytes:
    """Returns the vector that the null model makes of a text, as raw float32."""
    digest = np.frombuffer(sha256(text.encode()).digest(), dtype=np.uint8)
    return np.tile(digest.astype("<f4") / np.float32(255), REPEATS).tobytes()


def vector_bytes(vector: Sequence[float]) -> bytes:
    """Returns a vector that was read from JSON, as raw float32."""
    return np.array(vector, dtype="<f4").tobytes()


def has_vectors(answer: httpx.Response, texts: Sequence[str]) -> bool:
    """Whether an answer holds the vector of each text, bit for bit and in order."""
    return answer.status_code == 200 and list(map(vector_bytes, answer.json()["embeddings"])) == list(
        map(null_vector, texts)
    )


def error_of(answer: httpx.Response) -> dict[str, str]:
    """Returns the error that an answer tells, which must be in the one shape and name the request."""
    body = answer.json()
    assert list(body) == ["error"]
    assert sorted(body["error"]) == ["code", "message", "request_id"]
    assert answer.headers["content-type"] == "application/json"
    assert body["error"]["request_id"] == answer.headers["x-request-id"]
    assert body["error"]["message"]
    return dict(body["error"])


def log_lines(program: Program) -> list[dict[str, Any]]:
    """Returns all that a program has logged; a line that is no JSON object fails the test."""
    lines = [json.loads(line) for line in program.output.splitlines()]
    assert all(isinstance(line, dict) for line in lines)
    return lines


@dataclass(frozen=True)
class GatewayProcess:
    """One gateway process and where it listens."""

    program: Program
    port: int
    admin_port: int

    @property
    def url(self) -> str:
        """The main port."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin(self) -> str:
        """The admin port."""
        return f"http://127.0.0.1:{self.admin_port}"

    def embed(self, body: object, **headers: str) -> httpx.Response:
        """Posts a body to /embed on a connection of its own; `x_timeout_ms` is the header X-Timeout-Ms."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return plain_http.post(f"{self.url}/embed", json=body, headers=named, timeout=60)

    async def send(self, client: httpx.AsyncClient, text: str, **headers: str) -> httpx.Response:
        """Posts one text to /embed over a client's connections."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.post(f"{self.url}/embed", json={"text": text}, headers=named)

    def metric(self, name: str) -> float:
        """Returns the value of a metric, which is named with its labels."""
        return metric(self.program, name)

    def errors(self, code: str, queue: str = "") -> float:
        """Returns how many errors of a code it has counted, of a queue or before one was found."""
        return self.metric(f'redbatch_errors_total{{code="{code}",queue="{queue}"}}')

    def ready_workers(self, queue: str) -> float:
        """Returns how many workers of a queue it knows to be ready."""
        return self.metric(f'redbatch_workers{{queue="{queue}",state="ready"}}')

    def missing(self) -> list[str]:
        """Returns what /readyz says is missing."""
        answer = plain_http.get(f"{self.url}/readyz")
        missing: list[str] = answer.json().get("missing", [])
        assert answer.status_code == (503 if missing else 200)
        return missing


class GatewayCluster:
    """Starts what a test needs around one queue, and sees that none of it leaves anything behind.

    Args:
        processes: where they are started.
        redis_url: the server.
        queue: the name of the queue.

    Attributes:
        environment: more variables for every process.
    """

    def __init__(self, processes: Processes, redis_url: str, queue: str) -> None:
        self.processes = processes
        self.redis_url = redis_url
        self.queue = queue
        self.keys = Keys(queue)
        self.environment: dict[str, str] = {}

    def env(self, **settings: object) -> dict[str, str]:
        """Returns the environment of a process with these settings."""
        common = {"redis_url": self.redis_url, "queue": self.queue, "port": 0, "admin_port": 0, "drain_delay_s": 0}
        common["all_queues"] = False  # the queues of other tests are in the same Redis
        named = {f"REDBATCH_{name.upper()}": str(value) for name, value in (common | settings).items()}
        return self.environment | named

    async def start_gateway(self, **settings: object) -> GatewayProcess:
        """Starts a gateway; it listens, and may miss a worker."""
        program = await self.processes.start("gateway", "api", self.env(**settings), is_listening)
        return gateway_of(program)

    async def start_worker(self, model: str = "null", **settings: object) -> Program:
        """Starts a worker and waits until it is ready."""
        return await self.processes.start("worker", "gpuworker", self.env(model=model, **settings), worker_is_ready)

    def check_leaks(self) -> None:
        """Looks at what is left in the queue once everybody has gone."""
        with redis.Redis.from_url(self.redis_url, protocol=2) as client:
            found = find_leaks(client, self.keys)
            remove(client, self.keys)
        assert not found, f"left behind: {found}"


def gateway_of(program: Program) -> GatewayProcess:
    """Returns a gateway by what it has logged."""
    said = next(line for line in log_lines(program) if line["msg"] == "gateway starts")
    return GatewayProcess(program, said["port"], said["admin_port"])


def metric(program: Program, name: str) -> float:
    """Returns the value of a metric of a gateway or a worker, 0 if it has none.

    It is named with its labels; without any, it is the sum over them.
    """
    return metric_value(plain_http.get(metrics_url(program)).text, name)


def metrics_url(program: Program) -> str:
    """Returns where a gateway or a worker shows its metrics."""
    port = next(line["admin_port"] for line in log_lines(program) if "admin_port" in line)
    return f"http://127.0.0.1:{port}/metrics"


def metric_value(page: str, name: str) -> float:
    """Returns the value of a metric on a page, the sum over its labels if it is named without."""
    lines = page.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def is_listening(program: Program) -> bool:
    """Whether a gateway has begun to accept connections."""
    if '"gateway starts"' not in program.output:
        return False
    try:
        return plain_http.get(f"{gateway_of(program).url}/livez").status_code == 200
    except httpx.TransportError:
        return False


def worker_is_ready(program: Program) -> bool:
    """Whether a worker has told its admin port's probe that it is ready."""
    for line in log_lines(program):
        if "admin_port" in line:
            try:
                return plain_http.get(f"http://127.0.0.1:{line['admin_port']}/readyz").status_code == 200
            except httpx.TransportError:
                return False
    return False


def exchange_bytes(port: int, sent: bytes, *, timeout_s: float = 10.0) -> bytes:
    """Sends bytes to a port as they are and returns all that comes back until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(sent)
        received = b""
        with contextlib.suppress(ConnectionResetError):  # the other side did not read all that was sent
            while chunk := connection.recv(65_536):
                received += chunk
        return received
