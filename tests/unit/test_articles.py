"""The page for readers of articles has their words, and names only settings, routes, commands, metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from api.app import description
from redbatch.commands import app
from redbatch.variables import FOREIGN_NAMES, OTHER_VARIABLES, SETTINGS
from shared.process.settings import flag_of, variable_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "from-the-articles.md").read_text(encoding="utf-8")
ADMIN_ROUTES = {"GET /health", "GET /livez", "GET /readyz", "GET /metrics"}

TERMS = {
    1: (
        "POST /embed|maxBatchSize|maxWaitTime|POST /batch_embed|1 to 128|422|400|503|wrong count|504 after 5 s|"
        "while the model is not loaded|a channel of two batches|GET /health|MODEL_NAME=all-MiniLM-L6-v2|"
        "SENTENCE_TRANSFORMERS_HOME|multi-stage|two gateways|gpu=true|replicas: 1|reservations.devices: nvidia|ml-net|"
        "overlay network|ingress mesh|rolling update|update_config|restart_policy: on-failure|docker stack deploy|"
        "a log line for each batch|external queue like Redis|restart of a gateway|several workers|under 10 %|over 80 %|"
        "50 ms to under 5 ms"
    ),
    2: (
        "BatchedService|VectorTransformer|transform|preprocess|postprocess|hooks in the main process|do_one|"
        "max_batch_size|1 to 10,000|demo: 200|timeout_seconds|default 0.1|max_queue_size|callers wait|pickled|"
        "results match their requests|Errors|Logs|a stop|880 numbers|90.9 s|0.124 s|734"
    ),
    3: (
        "MiniTriton|MAX_BATCH_SIZE|MAX_WAIT_MS|5 ms|3 ms|500 requests|preferred batch sizes|Triton|priorities|"
        "parameters that adapt|latency budget|bursty|Try a bursty load|P50|640/s|880/s|1,050/s|the tail"
    ),
    4: (
        "no model in the web process|spawn|fork|watchdog|0.5 s|MAX_BATCH_SIZE|MAX_BATCH_WAIT_MS|NUM_WORKERS|"
        "QUEUE_SHARDS|preprocessing in the worker|a queue for each worker|priority class|short and long requests|"
        "REQUEST_TIMEOUT_S|POST /infer|Type: message|an error of a batch|429|504|late results|shared memory|image|"
        "out of memory|CUDA streams|raise the batch|adaptive wait|circuit breaker|shedding|"
        "close ingress, flush, stop workers|load balancer|tensor or pipeline parallel"
    ),
    5: (
        "POST /predict|202|request_id|POST /v1/predict|Tyk|rate limits|JetStream|durable stream|file storage|"
        "pull consumer|acknowledged|one message at a time|redelivery|results published|kept 1 h|RESULTS.<id>|"
        "downstream|lock key|created atomically|owner check|TTL 60 s|30 or 120 s|pool of GPUs|longer than its TTL|"
        "heartbeat|advisory|near the TTL|watch|out of memory|docker compose up|TensorFlow|log line|sequence diagram"
    ),
}
"""The words of each article under which its reader looks for something, separated by |."""


def here(pattern: str) -> set[str]:
    """Returns the matches in code spans of the page, without the first column of each table, which is the article's."""
    text = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    rows = [line.split(" | ", 1)[-1] if line.startswith("| ") else line for line in text.splitlines()]
    return {match for span in re.findall(r"`([^`]+)`", "\n".join(rows)) for match in re.findall(pattern, span)}


def command_flags() -> set[str]:
    """Returns all flags of all commands."""
    group = typer.main.get_command(app)
    commands = [group.commands[name] for name in sorted(group.commands)]  # type: ignore[attr-defined]
    return {flag for each in commands for parameter in each.params for flag in parameter.opts}


def test_the_tables_have_a_row_for_each_system() -> None:
    """Five systems, each with a table and a paragraph on what its article leaves open."""
    assert len(re.findall(r"^## [1-5]\. ", PAGE, re.MULTILINE)) == 5
    assert PAGE.count("| there | here |") == 5
    assert PAGE.count("**What the article leaves open.**") == 5


@pytest.mark.parametrize("system", TERMS)
def test_the_words_of_each_article_are_in_its_section(system: int) -> None:
    """A reader finds what an article describes by the article's words, as a browser searches for them."""
    section = re.split(r"^## (?=[1-5]\. )", PAGE, flags=re.MULTILINE)[system]
    assert section.startswith(f"{system}. ")
    text = " ".join(section.split()).lower()
    assert [term for term in TERMS[system].split("|") if term.lower() not in text] == []


def test_each_flag_and_variable_is_a_setting() -> None:
    """A reader can type what the page names."""
    fields = {name for each in SETTINGS for name in each.model_fields}
    flags = here(r"(?<![\w-])--[a-z][a-z0-9-]*")
    variables = here(r"REDBATCH_[A-Z_]+")
    assert len(flags) > 20
    assert flags - set(map(flag_of, fields)) - command_flags() == set()
    assert variables <= set(map(variable_of, fields)) | OTHER_VARIABLES


def test_each_route_exists() -> None:
    """Method and path are those of the OpenAPI description, or of the admin port."""
    paths = description()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods} | ADMIN_ROUTES
    named = here(r"(?:GET|POST|DELETE) /[\w/{}]*")
    assert len(named) > 6
    assert named - routes == set()


def test_each_metric_and_command_exists() -> None:
    """Metrics are those of gateway and worker; commands are those of the command line."""
    metrics = "".join((ROOT / name / "metrics.py").read_text(encoding="utf-8") for name in ("api", "gpuworker"))
    for name in here(r"\bredbatch_[a-z_]+"):
        assert f'"{name}"' in metrics, name
    group = typer.main.get_command(app)
    assert here(r"^redbatch [a-z]+") - {f"redbatch {name}" for name in group.commands} == set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [each.name for each in FOREIGN_NAMES if each.is_distinct and each.name != "REDIS_URL"])
def test_each_name_that_is_warned_of_is_explained(name: str) -> None:
    """The warning of `redbatch` and the page agree on what the names of other systems are."""
    assert f"`{name}" in PAGE


def test_the_ceilings_are_those_of_the_formula() -> None:
    """N items take 5 + 3 (n - 1) ms."""
    rows = re.findall(r"^\| (\d+), \d+ ms \| (\d+) ms \| (\d+)/s \| ([\d,]+)/s \|$", PAGE, re.MULTILINE)
    assert [int(size) for size, *_ in rows] == [8, 16, 32]
    for size, batch_ms, ceiling, printed in rows:
        assert int(batch_ms) == 5 + 3 * (int(size) - 1)
        assert int(ceiling) == int(1000 * int(size) / int(batch_ms))
        assert int(printed.replace(",", "")) > 2 * int(ceiling)
