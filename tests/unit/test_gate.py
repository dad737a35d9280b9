"""The second try that `.ci/run` gives to a few failing tests, with a `make` that stands for the real one."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

GATE = Path(__file__).parents[2] / ".ci" / "run"
FLAKY = "tests/unit/test_a.py::test_a[x-y]"
MAKE = """#!/bin/sh
# Each call takes the next line of `outcomes`: a status and what stderr says. The first one leaves what has failed.
number=$(($(cat calls 2>/dev/null || echo 0) + 1)); echo "$number" > calls
echo "$@" >> arguments
mkdir -p .pytest_cache/v/cache
[ "$number" -gt 1 ] || cp failed .pytest_cache/v/cache/lastfailed
line=$(sed -n "${number}p" outcomes); echo "${line#* }" >&2; exit "${line%% *}"
"""


def run(folder: Path, failed: list[str], *outcomes: str) -> tuple[int, str, list[str]]:
    """Runs `run_tests` of the gate; returns its status, its output, and the arguments of each call of `make`."""
    source = GATE.read_text(encoding="utf-8")
    functions = re.findall(r"^say\(\).*?$|^MAX_FLAKY=.*?^}$", source, re.MULTILINE | re.DOTALL)
    assert len(functions) == 2
    (folder / ".ci").mkdir()
    (folder / "make").write_text(MAKE)
    (folder / "make").chmod(0o755)
    (folder / "outcomes").write_text("".join(f"{each}\n" for each in outcomes))
    (folder / "failed").write_text(json.dumps(dict.fromkeys(failed, True), indent=2))
    script = "\n".join(["set -euo pipefail", 'PATH="$PWD:$PATH"', *functions, "run_tests test '-m a'"])
    ran = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=30, check=False)
    return ran.returncode, ran.stdout, (folder / "arguments").read_text(encoding="utf-8").splitlines()


def test_a_run_that_passes_runs_once(tmp_path: Path) -> None:
    """Also if an older run has left something that failed."""
    assert run(tmp_path, [FLAKY], "0 ok") == (0, "", ["test ARGS=-m a"])


def test_a_few_that_fail_run_again_alone(tmp_path: Path) -> None:
    """The output names them; if they fail again, so does the gate."""
    status, output, calls = run(tmp_path, [FLAKY], "2 make: *** [Makefile:50: test] Error 1", "0 ok")
    assert (status, calls[1:]) == (0, ["test JOBS=0 ARGS=-m a --last-failed --last-failed-no-failures=none"])
    assert f"passed at the second try: {FLAKY}\n" in output


def test_those_that_fail_twice_fail_the_gate(tmp_path: Path) -> None:
    """With the status of the second run."""
    outcomes = ["2 make: *** [Makefile:50: test] Error 1"] * 2
    status, output, calls = run(tmp_path, [FLAKY], *outcomes)
    assert (status, len(calls), "passed" in output) == (2, 2, False)


@pytest.mark.parametrize(
    ("failed", "error"),
    [
        pytest.param([FLAKY], 2, id="the run was cut off"),
        pytest.param([], 1, id="it is not known which failed"),
        pytest.param([f"{FLAKY}{number}" for number in range(6)], 1, id="many"),
        pytest.param([FLAKY, "tests/chaos/test_redis.py::test_a"], 1, id="chaos"),
        pytest.param(["tests/integration/cluster/test_stress.py::test_a"], 1, id="stress"),
        pytest.param(["tests/integration/gateway/test_job_durability.py::test_a"], 1, id="durability"),
    ],
)
def test_others_get_no_second_try(tmp_path: Path, failed: list[str], error: int) -> None:
    """What says that nothing is lost must not fail once."""
    status, _, calls = run(tmp_path, failed, f"2 make: *** [Makefile:50: test] Error {error}", "0 ok")
    assert (status, len(calls)) == (1, 1)
