"""Environment variables that have no effect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from redbatch.variables import FOREIGN_NAMES, SETTINGS, VARIABLES_CHECKED, ineffective_variables
from shared.process.settings import variable_of

DISTINCT_NAMES = [each.name for each in FOREIGN_NAMES if each.is_distinct]
SECRET = "redis://:a-secret@redis:6379/0"


def advice(command: str = "gateway", **environment: str) -> dict[str, str]:
    """Returns the variables of an environment that have no effect, with the advice."""
    return ineffective_variables(environment, command)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("REDBATCH_MAX_BATCHSIZE", "REDBATCH_MAX_BATCH_SIZE"),
        ("REDBATCH_REDIS_URI", "REDBATCH_REDIS_URL"),
        ("redbatch_reqest_timeout_ms", "REDBATCH_REQUEST_TIMEOUT_MS"),
        ("REDBATCH_MAX_WAIT_MS", "REDBATCH_MAX_BATCH_WAIT_MS"),
        ("REDBATCH_MODEL_NAME", "REDBATCH_MODEL"),
    ],
)
def test_a_misspelt_variable_names_the_closest_setting(name: str, right: str) -> None:
    """Whichever process sees it, and whichever process has the setting."""
    for command in ("gateway", "worker", "up", "queue"):
        assert advice(command, **{name: "1"}) == {name: f"set {right}"}


def test_a_variable_like_no_setting_refers_to_the_list() -> None:
    """There is no closest name, so the advice is where all names are."""
    assert advice(REDBATCH_QQQQQQ="1") == {"REDBATCH_QQQQQQ": "see redbatch settings for all names"}


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: each.__name__)
def test_no_process_reports_the_variables_of_another(settings: type) -> None:
    """A worker's variable in a gateway's environment is usual: both may read one file. So are the _FILE variables."""
    names = [variable_of(field) for field in settings.model_fields]  # type: ignore[attr-defined]
    environment = dict.fromkeys((*names, *(f"{name}_FILE" for name in names), "REDBATCH_API_KEY"), "x")
    for command in ("gateway", "worker", "up", "tune", "bench"):
        assert ineffective_variables(environment, command) == {}


def test_names_of_other_systems_are_explained_where_they_would_apply() -> None:
    """Each is reported by the process that has the setting, unless that is set; by no command that only asks."""
    assert advice("worker", MAX_BATCH_SIZE="16", REQUEST_TIMEOUT_S="2", PATH="/bin") == {
        "MAX_BATCH_SIZE": "set REDBATCH_MAX_BATCH_SIZE"
    }
    assert list(advice("gateway", MAX_BATCH_SIZE="16", REQUEST_TIMEOUT_S="2")) == ["REQUEST_TIMEOUT_S"]
    assert sorted(advice("up", **dict.fromkeys(DISTINCT_NAMES, "1"))) == sorted(DISTINCT_NAMES)
    assert advice("worker", MODEL_NAME="x", REDBATCH_MODEL="minilm") == {}
    assert advice("queue", **dict.fromkeys(DISTINCT_NAMES, "1")) == {}


def test_the_advice_for_names_of_other_systems_names_settings() -> None:
    """Each row and each variable in its advice names a setting; a row without a setting says what to do instead."""
    known = {variable_of(name) for each in SETTINGS for name in each.model_fields}
    assert {variable_of(each.setting) for each in FOREIGN_NAMES if each.setting} <= known
    assert set(re.findall(r"REDBATCH_\w+", " ".join(each.advice for each in FOREIGN_NAMES))) <= known
    assert all(each.instead for each in FOREIGN_NAMES if not each.setting)
    assert advice(REDBATCH_MAX_QUEUE_SIZE="1")["REDBATCH_MAX_QUEUE_SIZE"] == (
        "set REDBATCH_MAX_QUEUE_INPUTS, which counts inputs"
    )


def test_variables_of_kubernetes_for_services_are_no_settings() -> None:
    """A pod gets these for each Service of its namespace, here redbatch-gateway and redbatch-redis."""
    injected = {
        "REDBATCH_GATEWAY_SERVICE_HOST": "10.0.0.1",
        "REDBATCH_GATEWAY_SERVICE_PORT": "80",
        "REDBATCH_GATEWAY_SERVICE_PORT_HTTP": "80",
        "REDBATCH_GATEWAY_PORT": "tcp://10.0.0.1:80",
        "REDBATCH_GATEWAY_PORT_80_TCP": "tcp://10.0.0.1:80",
        "REDBATCH_GATEWAY_PORT_80_TCP_PROTO": "tcp",
        "REDBATCH_GATEWAY_PORT_80_TCP_PORT": "80",
        "REDBATCH_GATEWAY_PORT_80_TCP_ADDR": "10.0.0.1",
        "REDBATCH_REDIS_PORT": "tcp://10.0.0.2:6379",
    }
    assert ineffective_variables(injected, "gateway") == {}
    assert list(advice(REDBATCH_REDIS_PORT="6379")) == ["REDBATCH_REDIS_PORT"]


def test_the_children_of_up_repeat_nothing() -> None:
    """`up` has reported it."""
    assert advice(**{VARIABLES_CHECKED: "1", "REDBATCH_QQQQQQ": "1", "REQUEST_TIMEOUT_S": "2"}) == {}


@pytest.mark.parametrize("command", ["gateway", "worker", "settings"])
def test_commands_report_the_names_and_never_the_values(command: str, tmp_path: Path) -> None:
    """The logs of a process, or stderr of a command, have the name and the right one, but not what may be a secret."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "REDBATCH_REDIS_URI": SECRET,
        "REDIS_URL": SECRET,
        "REDBATCH_ADMIN_HOST": "203.0.113.1",  # so that gateway and worker end at once
        "REDBATCH_ADMIN_PORT": "1",
        "REDBATCH_PORT": "0",
        "REDBATCH_MODEL": "null",
    }
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "redbatch", command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    output = ended.stdout + ended.stderr
    assert "a-secret" not in output
    expected = dict.fromkeys(("REDBATCH_REDIS_URI", "REDIS_URL"), "set REDBATCH_REDIS_URL")
    if command == "settings":
        lines = [f"redbatch: warning: {name} has no effect: {text}" for name, text in expected.items()]
        assert ended.stderr.splitlines() == lines
        return
    records = [json.loads(line) for line in ended.stdout.splitlines()]
    warnings = {each["variable"]: each["advice"] for each in records if "variable" in each}
    assert warnings == expected
