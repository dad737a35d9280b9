"""The command line as separate processes, without a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shared.process.version import __version__

HEAVY = ("torch", "transformers", "sentence_transformers", "fastapi", "uvicorn", "numpy")


def redbatch(*arguments: str, cwd: Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the command in a folder with a minimal environment, in which no `redbatch up` of this user is found."""
    return subprocess.run(
        [sys.executable, "-m", "redbatch", *arguments],
        cwd=cwd,
        env={
            "PATH": "/usr/bin:/bin",
            "COLUMNS": "160",
            "TERM": "dumb",
            "XDG_RUNTIME_DIR": str(cwd),
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_version(tmp_path: Path) -> None:
    """`--version` prints one line."""
    assert redbatch("--version", cwd=tmp_path).stdout == f"redbatch {__version__}\n"


def test_without_arguments_it_prints_help(tmp_path: Path) -> None:
    """The help shows how to start, and all commands."""
    result = redbatch(cwd=tmp_path)
    for expected in ("redbatch up", "curl", "gateway", "worker", "queue", "settings"):
        assert expected in result.stdout


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("up", ("--port", "--gateways", "--workers", "--model", "--redis-url", "--max-batch-wait-ms", "--max-inputs")),
        ("gateway", ("--port", "--max-queue-inputs", "--reply-connections")),
        ("worker", ("--model", "--device", "--max-batch-size")),
        ("queue", ("--redis-url", "--json", "--watch")),
        ("usage", ("--redis-url", "--from", "--to", "--group", "--csv", "--json")),
        ("leases", ("--redis-url", "--pool", "--json", "--watch")),
        ("tune", ("--p95-ms", "--texts", "--search", "--model", "--dtype", "--out")),
        ("settings", ("--json", "--markdown")),
        ("size", ("--rate", "--model", "--vectors-per-s-per-worker", "--headroom", "--json")),
    ],
)
def test_each_command_explains_itself(command: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    """The help of a command contains its flags and an example, but no hidden flag."""
    text = redbatch(command, "--help", cwd=tmp_path).stdout
    assert f"redbatch {command}" in text
    for flag in flags:
        assert flag in text
    assert "--listen-fd" not in text


@pytest.mark.parametrize("command", ["up", "gateway", "worker"])
def test_an_invalid_setting_is_one_line_and_exit_code_2(command: str, tmp_path: Path) -> None:
    """An invalid setting gives one line with its flag and variable, no traceback, and exit code 2."""
    result = redbatch(command, cwd=tmp_path, environment={"REDBATCH_LOG_LEVEL": "loud"})
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "--log-level (REDBATCH_LOG_LEVEL)" in line


@pytest.mark.parametrize("module", ["api", "gpuworker"])
def test_modules_validate_settings_in_the_same_way(module: str, tmp_path: Path) -> None:
    """`python -m api` and `python -m gpuworker`, as in containers, report an invalid setting in the same words."""
    result = subprocess.run(
        [sys.executable, "-P", "-m", module],
        cwd=tmp_path,
        env={"REDBATCH_LOG_LEVEL": "loud"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert "--log-level (REDBATCH_LOG_LEVEL)" in result.stderr.splitlines()[-1]


def test_settings_as_json(tmp_path: Path) -> None:
    """`settings PROCESS --json` prints the settings of that process only."""
    result = redbatch("settings", "worker", "--json", cwd=tmp_path, environment={"REDBATCH_MODEL": "null"})
    by_name = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert by_name["model"]["value"] == "null"
    assert "port" not in by_name


@pytest.mark.parametrize("name", ["max_batch_size", "--max-batch-size", "REDBATCH_MAX_BATCH_SIZE"])
def test_one_setting_is_shown_in_full(name: str, tmp_path: Path) -> None:
    """`settings NAME` shows one setting, also by its flag; as JSON too."""
    assert "--max-batch-size" in redbatch("settings", name, cwd=tmp_path).stdout
    (entry,) = json.loads(redbatch("settings", name, "--json", cwd=tmp_path).stdout)
    assert (entry["name"], entry["allowed"]) == ("max_batch_size", "a whole number from 1 to 10000")


def test_an_unknown_setting_is_misuse(tmp_path: Path) -> None:
    """A misspelt setting is one line with similar names, and exit code 2."""
    result = redbatch("settings", "max_batch_sise", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "did you mean max_batch_size" in result.stderr


def test_the_command_line_imports_no_heavy_library(tmp_path: Path) -> None:
    """Neither torch nor FastAPI is imported for a help text, for `up`, or for `queue`."""
    program = (
        "import sys, redbatch.commands, redbatch.up.command, redbatch.queue.command; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("api.__main__", ("torch", "transformers")),
        ("gpuworker.__main__", ("torch", "transformers", "fastapi", "uvicorn")),
        ("gpuworker.engine.forkserver", ("torch", "transformers", "fastapi", "uvicorn", "pydantic", "redis")),
    ],
)
def test_processes_import_only_their_libraries(module: str, forbidden: tuple[str, ...], tmp_path: Path) -> None:
    """A gateway never imports torch; a worker, outside of its engine, imports neither torch nor FastAPI.

    An engine gets its settings from the worker and never calls Redis: it imports the libraries of neither.
    """
    program = f"import sys, {module}; print([name for name in {forbidden!r} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("environment", [{}, {"PYTHONPATH": "."}])
def test_packages_in_the_current_folder_are_ignored(environment: dict[str, str], tmp_path: Path) -> None:
    """Packages named api, gpuworker and shared in the current folder are not imported."""
    for name in ("api", "gpuworker", "shared"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('imported from the current folder')")
    result = redbatch("settings", "--json", cwd=tmp_path, environment=environment)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    """Without the gateway's libraries, the message names the extra to install."""
    program = (
        "import sys; sys.modules['fastapi'] = None\n"
        "from redbatch.run_process import run_gateway; sys.exit(run_gateway({}, None, None))"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 2
    assert "pip install -e '.[gateway]' in the checkout" in result.stderr
