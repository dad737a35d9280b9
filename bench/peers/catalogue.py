"""The peers: start commands, configurations and form of requests. Only data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BOTH = ("null", "minilm")
MODULE = ("{bin}/python", "-P", "-m")
COMMON = ("--model", "{model}", "--port", "{port}")
LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration of a peer: additions to the command line and the environment, and its path if it differs."""

    name: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """A server to compare with.

    Commands and environments may contain {bin} (of its environment), {port}, {model}, {minilm} (the model's folder) and
    {folder} (for files that it writes).

    Attributes:
        name: identifier on the command line and in the results.
        title: name in tables and plots.
        package: package whose version the tables show.
        command: start command, without the additions of a configuration.
        configurations: at most three; the best is compared.
        environment: the folder with its requirements.txt, if it is not `name`.
        path: path of the route that embeds.
        body: form of a request: `text`, `texts` (a list of one), `openai` or `kserve` (its protocol version 2).
        models: the models it can serve.
    """

    name: str
    title: str
    package: str
    command: Sequence[str]
    configurations: Sequence[Configuration]
    environment: str = ""
    path: str = "/embed"
    body: str = "text"
    models: Sequence[str] = BOTH

    @property
    def folder(self) -> str:
        """The folder with its requirements.txt."""
        return self.environment or self.name


def _batching(name: str, size: int, wait_ms: int, *more: str) -> Configuration:
    return Configuration(name, ("--batch-size", str(size), "--wait-ms", str(wait_ms), *more))


def _bento(name: str, size: int, processes: int) -> Configuration:
    return Configuration(name, environment={"EMBED_BATCH_SIZE": str(size), "EMBED_PROCESSES": str(processes)})


RAY_FAST = {
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": "{folder}/haproxy.cfg",
    "RAY_SERVE_HAPROXY_SOCKET_PATH": "{folder}/haproxy.sock",
    "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": "{folder}/metrics.sock",
    "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": "{folder}",
    "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": "{folder}/server-state",
}
"""The high-throughput mode of Ray Serve's documentation."""

FASTAPI = Peer(
    name="fastapi",
    title="FastAPI, `encode` per request",
    package="fastapi",
    command=(
        *("{bin}/python", "-P", "-m", "uvicorn", "bench.peers.fastapi.serve:app"),
        *("--host", LOCALHOST, "--port", "{port}", "--no-access-log", "--log-level", "warning"),
    ),
    configurations=(
        Configuration("response model"),
        Configuration("orjson", path="/orjson/embed"),
        Configuration("orjson, 2 processes", ("--workers", "2"), path="/orjson/embed"),
    ),
)
MOSEC = Peer(
    name="mosec",
    title="mosec, with orjson",
    package="mosec",
    command=(*MODULE, "bench.peers.mosec.serve", *COMMON),
    configurations=(
        _batching("32, 5 ms", 32, 5),
        _batching("64, 10 ms", 64, 10),
        _batching("32, 1 ms", 32, 1),
    ),
)
MOSEC_JSON = Peer(
    name="mosec-json",
    title="mosec, with its own JSON",
    package="mosec",
    environment="mosec",
    command=(*MODULE, "bench.peers.mosec.serve", *COMMON, "--own-json"),
    configurations=(_batching("32, 5 ms", 32, 5),),
)
LITSERVE = Peer(
    name="litserve",
    title="LitServe",
    package="litserve",
    command=(*MODULE, "bench.peers.litserve.serve", *COMMON),
    configurations=(
        _batching("32, 5 ms", 32, 5),
        _batching("32, 5 ms, fast queue, 2 API servers", 32, 5, "--fast-queue", "--processes", "2"),
        _batching("64, 10 ms, fast queue", 64, 10, "--fast-queue"),
    ),
)
BENTOML = Peer(
    name="bentoml",
    title="BentoML",
    package="bentoml",
    command=(
        *("{bin}/bentoml", "serve", "bench.peers.bentoml.serve:Embedder"),
        *("--host", LOCALHOST, "--port", "{port}"),
    ),
    configurations=(
        _bento("32, adaptive", 32, 1),
        _bento("64, adaptive", 64, 1),
        _bento("32, adaptive, 2 workers", 32, 2),
    ),
    body="texts",
)
RAY = Peer(
    name="ray",
    title="Ray Serve",
    package="ray",
    command=(*MODULE, "bench.peers.ray.serve", *COMMON),
    configurations=(
        _batching("32, 5 ms", 32, 5),
        Configuration("32, 5 ms, HAProxy", ("--batch-size", "32", "--wait-ms", "5"), RAY_FAST),
        Configuration("64, 10 ms, HAProxy", ("--batch-size", "64", "--wait-ms", "10"), RAY_FAST),
    ),
)
INFINITY = Peer(
    name="infinity",
    title="Infinity",
    package="infinity_emb",
    command=(
        *("{bin}/infinity_emb", "v2", "--model-id", "{minilm}", "--served-model-name", "minilm"),
        *("--engine", "torch", "--device", "cpu", "--dtype", "float32", "--log-level", "warning"),
        *("--host", LOCALHOST, "--port", "{port}"),
    ),
    configurations=(
        Configuration("32", ("--batch-size", "32", "--no-compile")),
        Configuration("64", ("--batch-size", "64", "--no-compile")),
        Configuration("32, compiled", ("--batch-size", "32", "--compile")),
    ),
    path="/embeddings",
    body="openai",
    models=("minilm",),
)
TRITON = Peer(
    name="triton",
    title="PyTriton, with Triton's server",
    package="nvidia-pytriton",
    command=(*MODULE, "bench.peers.triton.serve", *COMMON),
    configurations=(
        _batching("32, 5 ms", 32, 5),
        _batching("64, 10 ms", 64, 10),
        _batching("32, 1 ms", 32, 1),
    ),
    path="/v2/models/embed/infer",
    body="kserve",
)
PEERS = (FASTAPI, MOSEC, MOSEC_JSON, LITSERVE, BENTOML, RAY, INFINITY, TRITON)
