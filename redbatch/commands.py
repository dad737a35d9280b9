"""The commands: their options and help texts. Each command imports its implementation when it runs.

So a gateway never imports torch, a worker never imports FastAPI, and `redbatch --help` imports neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from pydantic_settings import BaseSettings

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.bench.settings import BENCH_HELP, BenchSettings
from redbatch.completion import completion
from redbatch.dead.cli import app as dead_app
from redbatch.embed.cli import embed
from redbatch.exit_codes import report_misuse
from redbatch.flags import Panel, Setting, settings_command, settings_of
from redbatch.jobs.cli import app as jobs_app
from redbatch.keys.cli import app as keys_app
from redbatch.leases.cli import leases
from redbatch.models.cli import app as models_app
from redbatch.options import UpPort, WholeJson
from redbatch.plain_words import PlainWords
from redbatch.queue.cli import queue
from redbatch.redis_users.cli import k8s_app, swarm_app
from redbatch.rerank.cli import rerank
from redbatch.size.cli import size
from redbatch.terminal import print_line
from redbatch.tune.settings import TuneSettings
from redbatch.usage.cli import usage
from shared.process.version import __version__

app = typer.Typer(
    name="redbatch",
    cls=PlainWords,
    help="""Serve embedding models: gateways and workers around one queue in Redis.

    Start a cluster:  redbatch up

    Send a request:  curl -s http://127.0.0.1:8080/embed -H 'Content-Type: application/json' -d '{"text": "hello"}'

    Each setting is a flag and an environment variable REDBATCH_<NAME>; the flag overrides the variable.

    Complete with the tab key:  source <(redbatch completion bash)
    """,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

COMMANDS: tuple[Callable[..., None], ...] = (completion, embed, leases, queue, rerank, size, usage)
for command in COMMANDS:
    app.command()(command)
app.add_typer(dead_app, name="dead")
app.add_typer(jobs_app, name="jobs")
app.add_typer(keys_app, name="keys")
app.add_typer(models_app, name="models")
app.add_typer(k8s_app, name="k8s")
app.add_typer(swarm_app, name="swarm")

GATEWAY = settings_of(GatewaySettings)
WORKER = settings_of(WorkerSettings)
BENCH = {setting.name: setting for setting in settings_of(BenchSettings)}
BENCH_PANELS = [
    Panel(title, [BENCH[name] for name in names.split()])
    for title, names in {
        "Requests": "path body",
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
        "Worker (settings given here are fixed, not tuned)",
        [
            setting
            for setting in WORKER
            if setting.name not in {"queue", "queue_shards", "admin_host", "admin_port", "worker_id", "tracing"}
            and not setting.name.startswith(
                ("log_", "redis_url", "redis_shards", "redis_password_", "redis_sentinel_", "redis_tls_")
            )
        ],
    ),
]


MaxRedisBytes = Annotated[
    int | None,
    typer.Option(
        min=16_777_216,
        help="Maximum memory of all private Redis, which evict nothing. Default: a quarter of this machine's.",
    ),
]
NoAuth = Annotated[bool, typer.Option("--no-auth", help="Require no API key, on whatever address the gateway listens.")]


def _with_auth(overrides: dict[str, str], no_auth: bool) -> dict[str, str]:
    return overrides | {"auth": "off"} if no_auth else overrides


def _print_version(value: bool) -> None:
    if value:
        print_line(f"redbatch {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Defines the options before the command."""


def _up_panels() -> list[Panel]:
    """Returns the flags of `up`: the settings of both processes, each once, with the defaults of `up`."""
    main_names = ("port", "model", "redis_url", "redis_shards")
    gateway = {setting.name: setting for setting in GATEWAY}
    worker = {setting.name: setting for setting in WORKER}
    defaults = {
        "admin_port": (
            "0",
            "First admin port; gateways, then workers, take consecutive ports. 0: each takes a free port.",
        ),
        "drain_delay_s": ("0", "After Ctrl-C: time for which the gateways still accept requests before they drain."),
        "drain_grace_s": ("30.0", "Maximum time for requests in flight, then for running batches, to finish."),
        "queue": (None, "Name of the queue. Default: the slug of the model's name."),
        "redis_url": (None, "URL of Redis. Default: `up` starts a private Redis."),
        "redis_shards": (
            None,
            "Number of private Redis to start, each with a shard of the queue; or URLs of Redis, separated by commas.",
        ),
        "worker_id": (None, "Name of the worker; several workers get the suffixes -1, -2, …"),
    }
    merged: dict[str, Setting] = {**gateway, **worker}
    for name, (default, meaning) in defaults.items():
        merged[name] = replace(merged[name], default=default, meaning=meaning)
    other_names = [name for name in merged if name not in main_names]
    return [
        Panel(None, [merged[name] for name in main_names]),
        Panel("Gateway", [merged[name] for name in other_names if name not in worker]),
        Panel("Worker", [merged[name] for name in other_names if name not in gateway]),
        Panel("Both", [merged[name] for name in other_names if name in gateway and name in worker]),
    ]


@settings_command(app, *_up_panels(), no_args_is_help=False)
def up(
    overrides: dict[str, str],
    gateways: Annotated[int, typer.Option(min=1, max=64, help="Number of gateways; they share the port.")] = 1,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of workers; each loads the model.")] = 1,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Folder in which the private Redis keeps accepted jobs, results and API keys. Default: they are lost "
            "when `up` ends.",
        ),
    ] = None,
    max_redis_bytes: MaxRedisBytes = None,
    no_auth: NoAuth = False,
) -> int:
    """Run a whole cluster in this terminal.

    It starts and supervises Redis, gateways and workers; a process that dies is
    restarted. Ctrl-C stops all processes and leaves no files behind, except in
    the folder of --data-dir.

    redbatch up

    redbatch up --model intfloat/e5-small-v2 --workers 2 --port 8000

    redbatch up --model null --gateways 2 --redis-url redis://localhost:6379/0
    """
    from redbatch.up.cluster import ClusterSize
    from redbatch.up.command import run

    return run(ClusterSize(gateways, workers), _with_auth(overrides, no_auth), data_dir, max_redis_bytes)


@settings_command(app, Panel("Settings", GATEWAY))
def gateway(
    overrides: dict[str, str],
    no_auth: NoAuth = False,
    up: UpPort = None,
    listen_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> int:
    """Run one gateway, the HTTP API in front of the queue.

    Any number of gateways can run behind a load balancer.

    redbatch gateway --redis-url redis://redis:6379/0

    REDBATCH_REDIS_URL=redis://redis:6379/0 redbatch gateway

    With --host 0.0.0.0 it requires API keys: see `redbatch keys`.
    """
    from redbatch.run_process import run_gateway

    return run_gateway(_with_auth(overrides, no_auth), up, listen_fd)


@settings_command(app, Panel("Settings", WORKER))
def worker(overrides: dict[str, str], up: UpPort = None) -> int:
    """Run one worker, which runs the model.

    It claims entries from the queue, forms batches, and sends replies. Any
    number of workers can serve one queue.

    redbatch worker --redis-url redis://redis:6379/0 --device cuda:0

    redbatch worker --model intfloat/e5-small-v2 --max-batch-tokens 32768
    """
    from redbatch.run_process import run_worker

    return run_worker(overrides, up)


@settings_command(app, *BENCH_PANELS, help=BENCH_HELP)
def bench(  # noqa: PLR0913, PLR0917 - one for each option
    overrides: dict[str, str],
    url: Annotated[
        str | None,
        typer.Argument(
            help="URL of the server; a path in it selects the route (default: /embed). Default: your running "
            "`redbatch up`."
        ),
    ] = None,
    up: UpPort = None,
    header: Annotated[list[str] | None, typer.Option(help="A header to send, as 'Name: value'; repeatable.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Count an answer without one vector per text as an error (costs CPU).")
    ] = False,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Send --inputs-per-request documents for one query, to /rerank.")
    ] = False,
    in_json: WholeJson = False,
) -> int:
    """Runs `redbatch bench`; returns the exit code."""
    from redbatch.bench import command
    from redbatch.up.run_file import find_up

    if url is not None and up is not None:
        return report_misuse("--up finds the URL of a running `redbatch up`: leave out the URL")

    def find_url() -> str:
        return url or find_up(up, "the URL of a server").url

    return command.bench(overrides, find_url, header or [], command.Mode(check, rerank, in_json))


@settings_command(app, *TUNE_PANELS)
def tune(
    overrides: dict[str, str],
    p95_ms: Annotated[float, typer.Option(min=0.001, max=60_000, help="Latency budget: the 95th percentile, in ms.")],
    beside_up: Annotated[
        bool, typer.Option("--beside-up", help="Search while a `redbatch up` of yours runs here and disturbs it.")
    ] = False,
    in_json: WholeJson = False,
) -> int:
    """Find the settings for your model, texts and latency budget.

    It finds the batch size, batch tokens, wait and runners with the most
    requests per second within the p95 budget.

    redbatch tune --p95-ms 100

    redbatch tune --p95-ms 50 --model intfloat/e5-small-v2 --texts queries.txt --out tuned.json

    redbatch tune --p95-ms 500 --inputs-per-request 32 --mix mixed --search max_batch_tokens,runners

    It starts a separate cluster on this machine, with Redis, and stops it at
    the end; it changes nothing else. Run it on the machine where the workers will
    run, with nothing else running there: beside your running `redbatch up` it
    refuses to start.

    Search: it starts from the defaults and changes one setting at a time, for
    as long as that gains 3 %. For each candidate it searches the number of
    clients with the most throughput within the budget; each client sends its
    next request after the previous answer. A candidate that beats the defaults
    runs again, in rounds that alternate with the defaults, and must win every
    round: on a tie, the defaults stay. If no candidate does, the defaults run
    once more. If what runs twice differs by a fifth, the result says that the
    measurement was disturbed.

    It first prints about how long it will take: 2 to 10 minutes with a worker
    that starts in 10 s, more if it starts slowly. Ctrl-C ends it and prints the
    results so far.
    """
    from redbatch.tune.command import tune as run_tune

    return run_tune(overrides, p95_ms, beside_up=beside_up, in_json=in_json)


@app.command(context_settings={"ignore_unknown_options": True})  # a setting may be named by its flag
def settings(
    name: Annotated[
        str | None,
        typer.Argument(
            help="gateway or worker: list only its settings. A setting, its flag or variable: show all of it."
        ),
    ] = None,
    in_json: WholeJson = False,
    in_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of the documentation.")] = False,
) -> None:
    """List every setting, or show one.

    Name, default and meaning of each setting. A value that this environment sets
    is in place of the default, with a *. Passwords are masked.

    redbatch settings gateway

    redbatch settings max_batch_size

    REDBATCH_MAX_BATCH_SIZE=128 redbatch settings worker --json
    """
    from redbatch.settings_view import show_settings

    if in_json and in_markdown:
        raise typer.Exit(report_misuse("--json and --markdown exclude each other"))
    settings_classes: dict[str, type[BaseSettings]] = {"gateway": GatewaySettings, "worker": WorkerSettings}
    raise typer.Exit(show_settings(settings_classes, name, in_json=in_json, in_markdown=in_markdown))


@app.command()
def openapi() -> None:
    """Print the OpenAPI description of a gateway's routes, as JSON.

    redbatch openapi > openapi.json
    """
    import orjson

    from api.app import description

    typer.echo(orjson.dumps(description(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), nl=False)
