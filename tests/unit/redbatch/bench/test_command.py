"""`redbatch bench` on the command line."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from redbatch.bench.load_generator import MIN_REFUSALS
from redbatch.bench.settings import BenchSettings
from redbatch.times import parse_duration
from tests.bench_server import answer, refusal, serving

ROOT = Path(__file__).parents[4]


def bench(*arguments: str, cwd: Path, prelude: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the command in an empty folder, after a line of Python."""
    program = (
        f"import sys\n{prelude}\nfrom redbatch.cli import main\nsys.argv[1:] = ['bench', *{list(arguments)!r}]\nmain()"
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "COLUMNS": "160", "TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "expected_s"), [("500ms", 0.5), ("10s", 10.0), ("1.5m", 90.0), ("2h", 7_200.0), ("0s", 0.0)]
)
def test_durations_have_units(text: str, expected_s: float) -> None:
    """Units of a duration range from milliseconds to hours."""
    assert parse_duration(text) == pytest.approx(expected_s)


def test_defaults() -> None:
    """The defaults are 64 clients for 10 s, up to 4,096 connections with a rate, and a gateway's default timeout."""
    closed, opened = BenchSettings(), BenchSettings(rate=5, inputs_per_request=100)
    assert (closed.max_connections, closed.duration_s, closed.warmup_s, closed.late_after_s) == (64, 10.0, 1.0, 10.05)
    assert (opened.max_connections, opened.late_after_s) == (4_096, 15.0)
    assert BenchSettings(requests=5).duration_s is None


def test_the_help_explains_both_loops_and_all_flags(tmp_path: Path) -> None:
    """The help has examples, explains both loops, and lists every flag."""
    text = bench("--help", cwd=tmp_path).stdout
    flags = (
        "rate",
        "arrivals",
        "duration",
        "requests",
        "warmup",
        "texts",
        "mix",
        "seed",
        "out",
        "plot",
        "header",
        "check",
    )
    for expected in (
        "redbatch bench http://",
        "Closed loop",
        "Open loop",
        "Exit code",
        "needs the extra bench",
        "'.[bench]'",
        "Bearer $REDBATCH_API_KEY",
        *(f"--{flag}" for flag in flags),
    ):
        assert expected in text


def test_a_refused_connection_is_one_line(tmp_path: Path) -> None:
    """A refused connection ends with exit code 1 and a line with the address."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        result = bench(url, "--requests", "1", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"redbatch: cannot connect to {url}/embed: Connection refused\n"


@pytest.mark.parametrize(
    ("script", "check", "error"),
    [
        (lambda _: answer(), True, ""),
        (lambda _: answer(body=b"{}"), True, "10 of 10 answers did not contain one vector per text"),
        (lambda _: answer(body=b"{}"), False, ""),
        (lambda n: answer(body=b"{}") if n % 2 else answer(), True, "5 of 10 answers did not contain one vector"),
        (lambda _: refusal("queue_full"), False, "none of 10 requests got a good answer"),
        (lambda n: refusal("queue_full") if n % 2 else answer(), True, ""),
        (lambda n: answer() if n == 1 else answer(400), False, ""),
    ],
)
async def test_the_exit_code_depends_on_the_answers(
    script: Callable[[int], bytes], check: bool, error: str, tmp_path: Path
) -> None:
    """Without a good answer, or with a wrong one under --check, the exit code is 1; the result is still written."""
    arguments = ["--requests", "10", "--clients", "1", "--warmup", "0s", "--out", "run.json"]
    async with serving(script) as server:
        result = await asyncio.to_thread(bench, server.url, *arguments, *(["--check"] if check else []), cwd=tmp_path)
    assert result.returncode == (1 if error else 0)
    assert result.stderr.startswith("redbatch: " if error else "")
    assert error in result.stderr
    assert len(result.stderr.splitlines()) == (1 if error else 0)
    assert "throughput" in result.stdout
    assert (tmp_path / "run.json").exists()


@pytest.mark.parametrize(
    ("status", "message", "arguments", "advice"),
    [
        (
            400,
            "Use POST /predict",
            [],
            """; for a function, give its route: --path /predict --body '{"input": "{number}"}'""",
        ),
        (400, "Use POST /predict", ["--body", '{"text": "a"}'], ""),
        (400, "There is no such prompt", [], ""),
        (401, "Send a key", [], '; send an API key with --header "Authorization: Bearer $REDBATCH_API_KEY"'),
        (404, "There is no such route", [], ""),
    ],
)
async def test_a_refusal_of_each_request_ends_the_run(
    status: int, message: str, arguments: list[str], advice: str, tmp_path: Path
) -> None:
    """What is wrong with several is wrong with all: the command ends, also in the warmup, with that message."""
    body = f'{{"error": {{"code": "a_code", "message": "{message}."}}}}'.encode()
    async with serving(lambda _: answer(status, body)) as server:
        options = ("--clients", "2", "--warmup", "4s", "--duration", "4s")
        result = await asyncio.to_thread(bench, server.url, *options, *arguments, cwd=tmp_path)
        assert server.requests <= MIN_REFUSALS + 2
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"redbatch: {server.url}/embed refuses the request: {status} a_code: {message}{advice}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["http://h", "--duration", "soon"], "--duration (REDBATCH_DURATION)"),
        (["http://h", "--duration", "0s"], "--duration (REDBATCH_DURATION)"),
        (["http://h", "--clients", "0"], "--clients (REDBATCH_CLIENTS)"),
        (["http://h", "--mix", "long"], "it takes short or mixed"),
        (["http://h", "--duration", "1s", "--requests", "5"], "exclude each other"),
        (["http://h", "--path", "predict"], "--path (REDBATCH_PATH): it takes a path such as /predict"),
        (["http://h/embed", "--path", "/predict"], "--path /predict: the URL names the route"),
        (["http://h", "--body", "{"], "--body (REDBATCH_BODY): it is not valid JSON"),
        (["http://h", "--body", "{}", "--check"], "--check: it looks for the vectors of texts"),
        (["http://h", "--body", "{}", "--inputs-per-request", "8"], "which --inputs-per-request needs"),
        (["ftp://h"], "not an http:// or https:// URL"),
        (["http://h", "--header", "nonsense"], "is not a header"),
        (["http://h", "--texts", "nowhere.txt"], "--texts (REDBATCH_TEXTS): nowhere.txt: No such file"),
        (
            ["http://h", "--out", "nowhere/out.json"],
            "(REDBATCH_OUT): nowhere/out.json: its folder does not exist",
        ),
        (["http://h", "--out", "."], "is a folder"),
        (["http://h", "--plot", "out.jpg"], ".png"),
    ],
)
def test_invalid_arguments_are_one_line_and_exit_code_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    """Invalid arguments are reported in one line, with exit code 2, before anything is sent."""
    result = bench(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line


@pytest.mark.parametrize(("module", "arguments"), [("httptools", []), ("matplotlib", ["--plot", "run.png"])])
def test_a_missing_library_is_reported_before_the_run(module: str, arguments: list[str], tmp_path: Path) -> None:
    """The message names the missing library and the extra that installs it."""
    result = bench("http://h", *arguments, cwd=tmp_path, prelude=f"sys.modules[{module!r}] = None")
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert module in line
    assert "pip install -e '.[bench]' in the checkout" in line


def test_the_command_line_imports_no_large_library(tmp_path: Path) -> None:
    """Libraries of the load are imported only when it runs."""
    heavy = ("httptools", "matplotlib", "numpy", "uvloop")
    program = f"import sys, redbatch.cli, redbatch.commands; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]"
