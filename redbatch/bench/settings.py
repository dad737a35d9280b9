"""Settings of `redbatch bench`; each is a flag."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from redbatch.times import parse_duration
from shared.option_words import ValueForm

DEFAULT_CLIENTS = 64
DEFAULT_MAX_CONNECTIONS = 4_096
DEFAULT_DURATION_S = 10.0
GATEWAY_TIMEOUT_MS = 10_000
GATEWAY_TIMEOUT_PER_INPUT_MS = 50
"""Default timeout of a gateway: GATEWAY_TIMEOUT_MS plus this for each input."""


def _validate_duration(text: str) -> str:
    parse_duration(text)
    return text


def _validate_positive(text: str) -> str:
    if parse_duration(text) <= 0:
        raise ValueError("must be longer than 0")
    return text


Duration = Annotated[str, AfterValidator(_validate_duration)]
PositiveDuration = Annotated[str, AfterValidator(_validate_positive)]

BENCH_HELP = r"""Put load on a running server and report the results.

Throughput, latency, errors by code, late answers, and the cost of the load
generator itself.

redbatch bench http://127.0.0.1:8080 --clients 256 --mix mixed --duration 30s --plot run.png

redbatch bench http://127.0.0.1:8080 --rate 500 --arrivals bursty --timeout-ms 1000

redbatch bench http://127.0.0.1:8080 --path /predict --body '{"input": "{number}"}'

redbatch bench http://127.0.0.1:8080 --rerank --inputs-per-request 20 --header "X-Model: my-reranker"

redbatch bench https://embed.example.com --header "Authorization: Bearer $REDBATCH_API_KEY" --requests 1000

A server that requires an API key gets it from a header, as above; no
variable is read for it.

Closed loop (--clients): each client sends its next request after the
previous answer. It measures the capacity of the server. The default is 64
clients for 10 s.

Open loop (--rate): each request is sent when it is due, and its latency
counts from that moment, so requests that wait behind a stall are not
hidden. It measures the latency that users experience.

Errors have the codes of the server, or http_<status>. Codes of the load
generator: connect_failed, connection_lost, malformed_answer, no_answer (5 s
after its timeout), never_sent (no connection was free until then, or until
Ctrl-C), wrong_answer (--check). Ctrl-C ends a run and prints its results.

Exit code: 0 even if some requests failed; 1 if no request got a good
answer, --check found a wrong one, the server cannot be reached or refuses
the first request (then nothing is measured), or a file cannot be written; 2
for invalid arguments.

It needs the extra bench (httptools, and for --plot matplotlib):
pip install -e '.\[bench]' in the checkout.
"""


class TextSettings(BaseSettings):
    """The texts of the requests, from command-line flags and `REDBATCH_*` variables."""

    model_config = SettingsConfigDict(env_prefix="REDBATCH_", frozen=True, extra="ignore")

    mix: Literal["short", "mixed"] = Field(
        default="short",
        description="Built-in texts: short (11 to 19 tokens, 15 on average) or mixed (log-normal lengths: "
        "39 on average, half under 28, 5 % over 105, none over 256).",
    )
    texts: Path | None = Field(
        default=None, description='A file of texts: one per line, or .jsonl with {"text": "..."} per line.'
    )
    seed: int = Field(default=1, description="Seed of texts and arrivals; the same seed gives the same load.")
    inputs_per_request: int = Field(default=1, ge=1, le=100_000, description="Number of texts per request.")


class BenchSettings(TextSettings):
    """Shape of the load, and the output files."""

    clients: int | None = Field(
        default=None,
        ge=1,
        le=60_000,
        description=f"Closed loop: number of clients, each with one request in flight ({DEFAULT_CLIENTS}). "
        f"With --rate: maximum number of connections ({DEFAULT_MAX_CONNECTIONS:,}).",
    )
    rate: float | None = Field(
        default=None, gt=0, le=1_000_000, description="Open loop: requests due per second, independent of the server."
    )
    arrivals: Literal["poisson", "bursty"] = Field(
        default="poisson",
        description="Arrivals of an open loop: poisson, or bursty (four times the rate for 0.5 s, none for 1.5 s).",
    )
    duration: PositiveDuration | None = Field(
        default=None, description="Duration of the measurement: 500ms, 10s, 2m (10s, unless --requests is given)."
    )
    requests: int | None = Field(
        default=None, ge=1, description="Number of requests to measure, instead of a duration."
    )
    warmup: Duration = Field(default="1s", description="Duration of the unmeasured load before the measurement.")
    path: Annotated[str, ValueForm("a path such as /predict")] | None = Field(
        default=None,
        pattern=r"^/[!-~]*$",
        description="Route of the requests, such as /predict or /v1/embeddings; /embed, unless the URL names one.",
    )
    body: str | None = Field(
        default=None,
        description="Body of the requests, for any route: JSON, or @FILE, whose strings may be placeholders: "
        '"{text}", "{number}" (counts requests), and with a value for each input "{texts}", "{numbers}".',
    )
    timeout_ms: int | None = Field(
        default=None,
        ge=1,
        le=300_000,
        description="Sent as X-Timeout-Ms; a later answer counts as late. By default it is not sent, and the default "
        "of a gateway applies: 10 s plus 50 ms per text.",
    )
    out: Path | None = Field(default=None, description="Write the settings and all measurements to this file, as JSON.")
    plot: Path | None = Field(
        default=None, description="Plot rates and latencies into this file (.png, .svg, .pdf). Needs the extra bench."
    )

    @model_validator(mode="after")
    def _validate_end(self) -> Self:
        if self.duration is not None and self.requests is not None:
            raise ValueError("--duration and --requests exclude each other")
        return self

    @property
    def duration_s(self) -> float | None:
        """Duration of the measurement in seconds; None: until `requests` are answered."""
        if self.requests is not None:
            return None
        return DEFAULT_DURATION_S if self.duration is None else parse_duration(self.duration)

    @property
    def warmup_s(self) -> float:
        """Duration of the load before the measurement, in seconds."""
        return parse_duration(self.warmup)

    @property
    def max_connections(self) -> int:
        """Maximum number of concurrent connections; of a closed loop, the number of clients."""
        return self.clients or (DEFAULT_CLIENTS if self.rate is None else DEFAULT_MAX_CONNECTIONS)

    @property
    def late_after_s(self) -> float:
        """Latency, in seconds, above which an answer is late."""
        return (self.timeout_ms or GATEWAY_TIMEOUT_MS + GATEWAY_TIMEOUT_PER_INPUT_MS * self.inputs_per_request) / 1000
