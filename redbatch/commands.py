"""The commands: what they take and what they say. Each imports the work itself when it runs.

So a gateway never imports torch, a worker never FastAPI, and `redbatch --help` neither.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer
from pydantic_settings import BaseSettings

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch import __version__
from redbatch.bench.settings import BenchSettings
from redbatch.dead.app import app as dead_app
from redbatch.embed.app import embed
from redbatch.flags import Panel, Setting, settings_of, with_flags
from redbatch.jobs.app import app as jobs_app
from redbatch.keys.app import app as keys_app
from shared.process.settings import EXIT_CONFIGURATION, complain
from redbatch.redis_users.app import k8s_app, swarm_app
from redbatch.tune.settings import TuneSettings

app = typer.Typer(
    name="redbatch",
    help="""Redbatch serves embedding models: gateways and workers around one queue in Redis.

    Try it:  redbatch up

    Then:  curl -s http://127.0.0.1:8080/embed -H 'Content-Type: application/json' -d '{"text": "hello"}'

    Each setting is a flag, and a variable REDBATCH_<NAME> in the environment; the flag wins.
    """,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

app.add_typer(dead_app, name="dead")
app.add_typer(jobs_app, name="jobs")
app.command()(embed)
app.add_typer(keys_app, name="keys")
app.add_typer(k8s_app, name="k8s")
app.add_typer(swarm_app, name="swarm")

GATEWAY = settings_of(GatewaySettings)
WORKER = settings_of(WorkerSettings)
BENCH = {setting.name: setting for setting in settings_of(BenchSettings)}
BENCH_PANELS = [
    Panel(title, [BENCH[name] for name in names.split()])
    for title, names in {
        "Load": "clients rate arrivals duration requests warmup seed timeout_ms",
        "Texts": "mix texts inputs_per_request",
        "Results": "out plot",
    }.items()
]
TUNE = {setting.name: setting for setting in settings_of(TuneSettings)}
TUNE_PANELS = [
    Panel("Texts", [TUNE[name] for name in ("mix", "texts", "inputs_per_request", "seed")]),
    Panel("Search", [TUNE[name] for name in ("search", "max_clients", "duration", "warmup", "rounds", "out")]),
    Panel(
        "Worker (what is given here is not changed)",
        [
            setting
            for setting in WORKER
            if setting.name not in {"queue", "log_level", "admin_host", "admin_port", "worker_id", "tracing"}
            and not setting.name.startswith(("redis_url", "redis_tls_"))
        ],
    ),
]


NoAuth = Annotated[bool, typer.Option("--no-auth", help="Ask no client for a key, wherever it listens.")]


def _with_auth(given: dict[str, str], no_auth: bool) -> dict[str, str]:
    return given | {"auth": "off"} if no_auth else given


class Process(StrEnum):
    """Whose settings."""

    gateway = "gateway"
    worker = "worker"


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"redbatch {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Holds the options before the command."""


def _up_panels() -> list[Panel]:
    """Returns the flags of `up`: the settings of both processes, each once, with the defaults that `up` gives them."""
    main = ("port", "model", "redis_url")
    differing = {
        "admin_port": ("0", "First admin port: gateways, then workers, take consecutive ones; 0: free ones."),
        "drain_delay_s": ("0", "After Ctrl-C: time to serve on before the gateways drain."),
        "drain_grace_s": ("30.0", "Time for the requests in flight, then for the batches that run, to finish."),
        "queue": (None, "Name of the queue; the slug of the model's name when not set."),
        "redis_url": (None, "Redis of the cluster; one of its own when not set."),
        "worker_id": (None, "Name of the worker; several get -1, -2, … behind it."),
    }
    gateway = {setting.name: setting for setting in GATEWAY}
    worker = {setting.name: setting for setting in WORKER}
    merged: dict[str, Setting] = {**gateway, **worker}
    for name, (default, meaning) in differing.items():
        merged[name] = replace(merged[name], default=default, meaning=meaning)
    rest = [name for name in merged if name not in main]
    return [
        Panel(None, [merged[name] for name in main]),
        Panel("Gateway", [merged[name] for name in rest if name not in worker]),
        Panel("Worker", [merged[name] for name in rest if name not in gateway]),
        Panel("Both", [merged[name] for name in rest if name in gateway and name in worker]),
    ]


@app.command(no_args_is_help=False)
@with_flags(*_up_panels())
def up(
    given: dict[str, str],
    gateways: Annotated[int, typer.Option(min=1, max=64, help="How many gateways share the port.")] = 1,
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many workers, each with its own model.")] = 1,
    no_auth: NoAuth = False,
) -> int:
    """Run a whole cluster in this terminal.

    Redis, gateways and workers, supervised: what dies starts again. Ctrl-C stops all of it and leaves nothing behind.

    redbatch up

    redbatch up --model intfloat/e5-small-v2 --workers 2 --port 8000

    redbatch up --model null --gateways 2 --redis-url redis://localhost:6379/0
    """
    from redbatch.up.command import Size, run

    return run(Size(gateways, workers), _with_auth(given, no_auth))


@app.command()
@with_flags(Panel("Settings", GATEWAY))
def gateway(
    given: dict[str, str],
    no_auth: NoAuth = False,
    listen_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> int:
    """Run one gateway, the HTTP API in front of the queue.

    Any number may stand behind a load balancer.

    redbatch gateway --redis-url redis://redis:6379/0

    redbatch gateway --host 0.0.0.0 asks for keys: see `redbatch keys`

    REDBATCH_REDIS_URL=redis://redis:6379/0 redbatch gateway
    """
    from redbatch.single import run_gateway

    return run_gateway(_with_auth(given, no_auth), listen_fd)


@app.command()
@with_flags(Panel("Settings", WORKER))
def worker(given: dict[str, str]) -> int:
    """Run one worker, which runs the model.

    It takes entries from the queue, forms batches, and replies. Any number may serve one queue.

    redbatch worker --redis-url redis://redis:6379/0 --device cuda:0

    redbatch worker --model intfloat/e5-small-v2 --max-batch-tokens 32768
    """
    from redbatch.single import run_worker

    return run_worker(given)


@app.command()
def queue(
    redis_url: Annotated[
        str | None,
        typer.Option(envvar="REDBATCH_REDIS_URL", help="Redis to ask; your running `redbatch up` when not set."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--queue", envvar="REDBATCH_QUEUE", help="Name of the queue.", show_default="minilm")
    ] = None,
    in_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
    keep: Annotated[bool, typer.Option("--watch", help="Look again each second, until Ctrl-C.")] = False,
) -> None:
    """Show the queue at a glance.

    What waits, what is in flight, how old the oldest entry is, and what each worker holds. Without --redis-url it
    finds your running `redbatch up`.

    redbatch queue --watch

    redbatch queue --redis-url redis://redis:6379/0 --queue minilm --json
    """
    from redbatch.queue.command import show_queue

    raise typer.Exit(show_queue(redis_url, name, in_json=in_json, keep=keep))


@app.command()
@with_flags(*BENCH_PANELS)
def bench(
    given: dict[str, str],
    url: Annotated[str, typer.Argument(help="The server; with a path, that of the route (else /embed).")],
    header: Annotated[
        list[str] | None, typer.Option(help="A header to send, as 'Name: value'; may be given again.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="An answer without a vector for each text is an error (costs CPU).")
    ] = False,
) -> int:
    r"""Put load on a running server, and say what came of it.

    Throughput, latency, errors by code, late answers, and what the load generator itself cost.

    redbatch bench http://127.0.0.1:8080 --clients 256 --mix mixed --duration 30s --plot run.png

    redbatch bench http://127.0.0.1:8080 --rate 500 --arrivals bursty --timeout-ms 1000

    redbatch bench https://embed.example.com --texts queries.txt --requests 1000 --header 'Authorization: Bearer ...'

    Each client of a closed loop (--clients) sends its next request after the last answer: this shows what the server
    can do. Without a flag it is 64 clients for 10 s.

    An open loop (--rate) sends each request when it is due, and counts its latency from then on, so what waits behind
    a stall is not hidden: this shows what users feel.

    Errors have the server's own codes, or http_<status>. Those of the load generator: connect_failed, connection_lost,
    malformed_answer, no_answer (5 s after it was late), never_sent (no connection was free for as long,
    or until Ctrl-C), wrong_answer (--check). Ctrl-C ends a run, and shows what was measured so far.

    The exit code is 0 though some requests failed; 1 when none got a good answer, --check found a wrong one, the
    server cannot be reached or a file not be written; 2 for arguments that make no sense.

    It comes with: pip install 'redbatch\[bench]'.
    """
    from redbatch.bench.command import bench as run_bench

    return run_bench(given, url, header or [], check=check)


@app.command()
@with_flags(*TUNE_PANELS)
def tune(
    given: dict[str, str],
    p95_ms: Annotated[float, typer.Option(min=0.001, help="The budget: 95 of 100 answers come within so many ms.")],
) -> int:
    """Find the settings for your model, texts and latency budget.

    Which batch size, batch tokens, wait and runners give the most requests a second while p95 stays within the budget.

    redbatch tune --p95-ms 100

    redbatch tune --p95-ms 50 --model intfloat/e5-small-v2 --texts queries.txt --out tuned.json

    redbatch tune --p95-ms 500 --inputs-per-request 32 --mix mixed --search max_batch_tokens,runners

    It starts a cluster of its own on this machine, with Redis, and stops it at the end; nothing else is touched. Run it
    where the workers will run, with nothing else running there.

    How it looks: from the defaults, one setting at a time, on while that wins by 3 %. For each it seeks the number of
    clients (each sends its next request after the last answer) that gives most within the budget. What beats the
    defaults runs again, in rounds in turn with them, and must win in every round: on a tie the defaults stay.

    It says at first how long it will take: some minutes. Ctrl-C ends it, and shows what was found so far.
    """
    from redbatch.tune.command import tune as run_tune

    return run_tune(given, p95_ms)


@app.command()
def settings(
    process: Annotated[Process | None, typer.Argument(help="Only the settings of one process.")] = None,
    in_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
    in_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of the documentation.")] = False,
) -> None:
    """List every setting.

    With its variable, default, value in this environment, and meaning. Passwords are masked.

    redbatch settings gateway

    REDBATCH_MAX_BATCH_SIZE=128 redbatch settings worker --json
    """
    from rich.console import Console

    from redbatch import settings_view

    if in_json and in_markdown:
        complain("--json and --markdown exclude each other")
        raise typer.Exit(EXIT_CONFIGURATION)
    kinds: dict[str, type[BaseSettings]] = {"gateway": GatewaySettings, "worker": WorkerSettings}
    chosen = kinds if process is None else {process.value: kinds[process.value]}
    rows = settings_view.rows(chosen, with_values=not in_markdown)
    if in_json or in_markdown:
        typer.echo(settings_view.as_json(rows) if in_json else settings_view.as_markdown(rows))
    else:
        settings_view.print_table(rows, Console())


@app.command()
def openapi() -> None:
    """Print the OpenAPI description of a gateway's routes, as JSON.

    redbatch openapi > openapi.json
    """
    import orjson

    from api.app import description

    typer.echo(orjson.dumps(description(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), nl=False)
