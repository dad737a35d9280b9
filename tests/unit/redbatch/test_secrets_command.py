"""`redbatch k8s secrets` and `redbatch swarm secrets`: what kubectl and a shell are given."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from redbatch.commands import app
from redbatch.redis_users.acl import newest_digests

PASSWORD = r"[0-9a-f]{64}"


def output(*arguments: str) -> str:
    """Returns what a command prints; it must succeed, and say no more than whom new passwords lock out."""
    result = CliRunner().invoke(app, arguments)
    ends = arguments[0] == "k8s" and not {"--keep", "--drop-old"} & {*arguments}
    assert (result.exit_code, result.stderr.startswith("redbatch: these passwords are new")) == (0, ends)
    assert ends or result.stderr == ""
    return result.stdout


def refusal(*arguments: str) -> str:
    """Returns the one line of a command that is refused."""
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    return line


def secrets_in(text: str) -> dict[str, dict[str, str]]:
    """Returns the values of each secret, by its name; the namespace comes first."""
    first, *rest = yaml.safe_load_all(text)
    assert first["kind"] == "Namespace"
    assert all((each["apiVersion"], each["kind"], each["type"]) == ("v1", "Secret", "Opaque") for each in rest)
    assert {each["metadata"]["namespace"] for each in rest} == {first["metadata"]["name"]}
    return {each["metadata"]["name"]: each["stringData"] for each in rest}


def test_kubernetes_gets_a_namespace_and_six_secrets() -> None:
    """With the names and keys that the manifests refer to, and nothing else."""
    text = output("k8s", "secrets")
    namespace: dict[str, Any] = next(yaml.safe_load_all(text))
    labels = {f"pod-security.kubernetes.io/{each}": "restricted" for each in ("enforce", "warn", "audit")}
    assert namespace == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "redbatch", "labels": labels},
    }
    assert {name: sorted(values) for name, values in secrets_in(text).items()} == {
        "redis-users": ["users.acl"],
        "gateway-redis": ["url"],
        "worker-redis": ["url"],
        "keda-redis": ["password", "username"],
        "ops-redis": ["password", "url", "username"],
        "admin-redis": ["password", "url", "username"],
    }


def test_each_password_opens_what_redis_is_told() -> None:
    """The digest in the file of users is that of the password in the URL, and of the one beside a name."""
    found = secrets_in(output("k8s", "secrets"))
    digests = newest_digests(found["redis-users"]["users.acl"])
    for name in ("gateway", "worker", "ops", "admin"):
        url = re.fullmatch(rf"redis://{name}:({PASSWORD})@redis:6379/0", found[f"{name}-redis"]["url"])
        assert url is not None
        assert sha256(url[1].encode()).hexdigest() == digests[name]
        assert found[f"{name}-redis"].get("password", url[1]) == url[1]
        assert found[f"{name}-redis"].get("username", name) == name
    keda = found["keda-redis"]
    assert keda["username"] == "keda"
    assert sha256(keda["password"].encode()).hexdigest() == digests["keda"]


def test_passwords_differ_from_run_to_run() -> None:
    """All of them."""
    one, two = (set(re.findall(rf":({PASSWORD})@", output("k8s", "secrets"))) for _ in range(2))
    assert (len(one), len(two), one & two) == (4, 4, set())


def test_where_redis_is_and_how_it_is_spoken_to_can_be_told() -> None:
    """Another namespace, host and port, and TLS."""
    text = output("k8s", "secrets", "--namespace", "yes", "--host", "redis.example.com", "--port", "6380", "--tls")
    found = secrets_in(text)
    assert re.fullmatch(rf"rediss://worker:{PASSWORD}@redis.example.com:6380/0", found["worker-redis"]["url"])
    assert 'namespace: "yes"' in text  # bare, it would be a boolean


def test_old_passwords_stay_and_go(tmp_path: Path) -> None:
    """--keep leaves the newest ones valid; --drop-old prints the users alone, without those."""
    file = tmp_path / "users.acl"
    first = secrets_in(output("k8s", "secrets"))["redis-users"]["users.acl"]
    file.write_text(first, encoding="utf-8")
    second = secrets_in(output("k8s", "secrets", "--keep", str(file)))["redis-users"]["users.acl"]
    assert all(digest in second for digest in newest_digests(first).values())
    file.write_text(second, encoding="utf-8")
    (document,) = yaml.safe_load_all(output("k8s", "secrets", "--drop-old", str(file)))
    assert document["metadata"] == {"name": "redis-users", "namespace": "redbatch"}
    last = document["stringData"]["users.acl"]
    assert newest_digests(last) == newest_digests(second)
    assert not any(digest in last for digest in newest_digests(first).values())


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    """In one line, with exit code 2, and nothing on stdout that somebody may apply."""
    (tmp_path / "empty").write_text("", encoding="utf-8")
    assert "empty: it has no user gateway" in refusal("k8s", "secrets", "--keep", str(tmp_path / "empty"))
    assert "cannot be read" in refusal("k8s", "secrets", "--drop-old", str(tmp_path / "none"))
    assert "exclude each other" in refusal("k8s", "secrets", "--keep", "a", "--drop-old", "b")
    assert "--namespace A_b" in refusal("k8s", "secrets", "--namespace", "A_b")
    assert "cannot be read" in refusal("swarm", "secrets", "--keep", str(tmp_path))
    assert "--suffix a b" in refusal("swarm", "secrets", "--suffix", "a b")


def test_a_shell_makes_the_secrets_of_a_swarm(tmp_path: Path) -> None:
    """Each by its name with the suffix; what docker reads is the file of users and the URLs that fit it."""
    script = output("swarm", "secrets", "--suffix", "_2")
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\ntest "$1 $2 $4" = "secret create -" && cat > {tmp_path}/"$3"\n', encoding="utf-8")
    docker.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh"], input=script, text=True, env=path, check=True)
    made = {each.name: each.read_text(encoding="utf-8") for each in tmp_path.glob("redbatch_*")}
    assert sorted(made) == ["redbatch_gateway_redis_url_2", "redbatch_redis_acl_2", "redbatch_worker_redis_url_2"]
    digests = newest_digests(made["redbatch_redis_acl_2"])
    for name in ("gateway", "worker"):
        url = re.fullmatch(rf"redis://{name}:({PASSWORD})@redis:6379/0\n", made[f"redbatch_{name}_redis_url_2"])
        assert url is not None
        assert sha256(url[1].encode()).hexdigest() == digests[name]
    for name in ("ops", "admin"):
        url = re.search(rf"^# redis://{name}:({PASSWORD})@redis:6379/0$", script, re.MULTILINE)
        assert url is not None
        assert sha256(url[1].encode()).hexdigest() == digests[name]


@pytest.mark.parametrize(
    ("words", "advice"),
    [(("k8s",), "pipe them: | kubectl apply --server-side -f -"), (("swarm",), "write them to a file, as --help says")],
)
def test_a_terminal_is_told_that_it_shows_passwords(words: tuple[str], advice: str) -> None:
    """And where they should go. stdout has them all the same."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "redbatch", *words, "secrets"]
    try:
        with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, text=True) as process:
            os.close(theirs)
            shown = b""
            while chunk := _read(ours):
                shown += chunk
            assert process.stderr is not None
            (line,) = process.stderr.read().splitlines()
    finally:
        os.close(ours)
    assert b"user gateway reset on" in shown
    assert line.startswith("redbatch: these are passwords")
    assert advice in line


def _read(terminal: int) -> bytes:
    """Reads from a terminal; who closes its other end makes Linux say EIO."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""
