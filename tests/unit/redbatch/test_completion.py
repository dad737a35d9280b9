"""Completion, in a real bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = f"#!{sys.executable}\nfrom redbatch.cli import main\nmain()\n"
COMPLETE = """
set -euo pipefail
source <(redbatch completion bash)
[[ $(complete -p redbatch) =~ -F\\ ([^ ]+) ]]
function=${BASH_REMATCH[1]}
COMP_WORDS=(redbatch "$@")
COMP_CWORD=$#
$function redbatch
printf '%s\\n' "${COMPREPLY[@]:-}"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Returns the variables of a shell that finds the program; one of them is misspelt."""
    program = tmp_path / "redbatch"
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {"PATH": f"{tmp_path}:/usr/bin:/bin", "REDBATCH_MODLE": "null", **kept}


def shell(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (["qu"], ["queue"]),
        (["jobs", "re"], ["results"]),
        (["worker", "--max-batch-t"], ["--max-batch-tokens"]),
        (["worker", "--dtype", "fl"], ["float32", "float16"]),
        (["up", "--job-durability", ""], ["none", "aof", "replicas"]),
        (["gateway", "--all-queues", "f"], ["false"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["bench", "--texts", "some/fi"], [""]),  # then bash itself completes names of files
    ],
)
def test_bash_completes(words: list[str], candidates: list[str], environment: dict[str, str]) -> None:
    """Commands, flags and the choices of settings; nothing is printed to the terminal, no warning either."""
    result = shell(environment, "bash", "-c", COMPLETE, "bash", *words)
    assert (result.stdout.splitlines(), result.stderr) == (candidates, "")


@pytest.mark.parametrize(
    ("name", "words"), [("zsh", "compdef _redbatch_completion redbatch"), ("fish", "complete --command redbatch")]
)
def test_other_shells_have_their_script(name: str, words: str, environment: dict[str, str]) -> None:
    """It registers the program with the shell."""
    assert words in shell(environment, "redbatch", "completion", name).stdout
