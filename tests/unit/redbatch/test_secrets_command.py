"""`redbatch k8s secrets` and `redbatch swarm secrets`: their output for kubectl and a shell."""

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
from shared.redis_url import Kind, find_url_problem, parse_url

PASSWORD = r"[0-9a-f]{64}"


def output_of(*arguments: str) -> str:
    """Returns the output of a command that must succeed and warn only if it makes existing passwords invalid."""
    result = CliRunner().invoke(app, arguments)
    warns = arguments[0] == "k8s" and not {"--keep", "--drop-old"} & {*arguments}
    assert (result.exit_code, result.stderr.startswith("redbatch: these passwords are new")) == (0, warns)
    assert warns or result.stderr == ""
    return result.stdout


def error_line(*arguments: str) -> str:
    """Returns the one error line of a command that must fail with exit code 2."""
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    return line


def parse_secrets(text: str) -> dict[str, dict[str, str]]:
    """Returns the values of each secret, by its name; checks that the namespace comes first."""
    first, *rest = yaml.safe_load_all(text)
    assert first["kind"] == "Namespace"
    assert all((each["apiVersion"], each["kind"], each["type"]) == ("v1", "Secret", "Opaque") for each in rest)
    assert {each["metadata"]["namespace"] for each in rest} == {first["metadata"]["name"]}
    return {each["metadata"]["name"]: each["stringData"] for each in rest}


def test_k8s_secrets_prints_a_namespace_and_six_secrets() -> None:
    """Names and keys are those that the manifests refer to, and no others."""
    text = output_of("k8s", "secrets")
    namespace: dict[str, Any] = next(yaml.safe_load_all(text))
    labels = {f"pod-security.kubernetes.io/{each}": "restricted" for each in ("enforce", "warn", "audit")}
    assert namespace == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "redbatch", "labels": labels},
    }
    assert {name: sorted(values) for name, values in parse_secrets(text).items()} == {
        "redis-users": ["users.acl"],
        "gateway-redis": ["url"],
        "worker-redis": ["url"],
        "keda-redis": ["password", "username"],
        "ops-redis": ["password", "url", "username"],
        "admin-redis": ["password", "url", "username"],
    }


def test_each_password_matches_its_digest() -> None:
    """The digest in the ACL file is that of the password in the URL and in the field `password`."""
    secrets = parse_secrets(output_of("k8s", "secrets"))
    digests = newest_digests(secrets["redis-users"]["users.acl"])
    for name in ("gateway", "worker", "ops", "admin"):
        url = re.fullmatch(rf"redis://{name}:({PASSWORD})@redis:6379/0", secrets[f"{name}-redis"]["url"])
        assert url is not None
        assert sha256(url[1].encode()).hexdigest() == digests[name]
        assert secrets[f"{name}-redis"].get("password", url[1]) == url[1]
        assert secrets[f"{name}-redis"].get("username", name) == name
    keda = secrets["keda-redis"]
    assert keda["username"] == "keda"
    assert sha256(keda["password"].encode()).hexdigest() == digests["keda"]


def test_passwords_differ_between_runs() -> None:
    """Every run creates four new passwords in URLs."""
    one, two = (set(re.findall(rf":({PASSWORD})@", output_of("k8s", "secrets"))) for _ in range(2))
    assert (len(one), len(two), one & two) == (4, 4, set())


def test_options_set_namespace_host_port_and_tls() -> None:
    """Namespace, host, port and TLS of the output are those of the options."""
    text = output_of("k8s", "secrets", "--namespace", "yes", "--host", "redis.example.com", "--port", "6380", "--tls")
    secrets = parse_secrets(text)
    assert re.fullmatch(rf"rediss://worker:{PASSWORD}@redis.example.com:6380/0", secrets["worker-redis"]["url"])
    assert 'namespace: "yes"' in text  # unquoted, it would be a boolean


def test_keep_reads_stdin() -> None:
    """A container of the gateway's image cannot read a file of the host that only its owner may read."""
    first = parse_secrets(output_of("k8s", "secrets"))["redis-users"]["users.acl"]
    result = CliRunner().invoke(app, ["swarm", "secrets", "--suffix", "_2", "--keep", "-"], input=first)
    assert (result.exit_code, result.stderr) == (0, "")
    assert all(digest in result.stdout for digest in newest_digests(first).values())


def test_keep_and_drop_old(tmp_path: Path) -> None:
    """--keep leaves the newest passwords valid; --drop-old prints only the users, without the old passwords."""
    file = tmp_path / "users.acl"
    first = parse_secrets(output_of("k8s", "secrets"))["redis-users"]["users.acl"]
    file.write_text(first, encoding="utf-8")
    second = parse_secrets(output_of("k8s", "secrets", "--keep", str(file)))["redis-users"]["users.acl"]
    assert all(digest in second for digest in newest_digests(first).values())
    file.write_text(second, encoding="utf-8")
    (document,) = yaml.safe_load_all(output_of("k8s", "secrets", "--drop-old", str(file)))
    assert document["metadata"] == {"name": "redis-users", "namespace": "redbatch"}
    last = document["stringData"]["users.acl"]
    assert newest_digests(last) == newest_digests(second)
    assert not any(digest in last for digest in newest_digests(first).values())


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    """Invalid arguments give one line and exit code 2, and stdout stays empty, so that nothing is applied."""
    (tmp_path / "empty").write_text("", encoding="utf-8")
    assert "empty: it has no user gateway" in error_line("k8s", "secrets", "--keep", str(tmp_path / "empty"))
    assert "cannot be read" in error_line("k8s", "secrets", "--drop-old", str(tmp_path / "none"))
    assert "exclude each other" in error_line("k8s", "secrets", "--keep", "a", "--drop-old", "b")
    assert "--namespace A_b" in error_line("k8s", "secrets", "--namespace", "A_b")
    assert "cannot be read" in error_line("swarm", "secrets", "--keep", str(tmp_path))
    assert "--suffix a b" in error_line("swarm", "secrets", "--suffix", "a b")
    assert "--host a/b" in error_line("swarm", "secrets", "--host", "redis", "--host", "a/b")
    assert "name each host once" in error_line("swarm", "secrets", "--host", "redis", "--host", "redis")


def test_the_swarm_script_creates_the_secrets(tmp_path: Path) -> None:
    """Each secret has its name and the suffix; docker reads the ACL file and the matching URLs."""
    script = output_of("swarm", "secrets", "--suffix", "_2")
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\ntest "$1 $2 $4" = "secret create -" && cat > {tmp_path}/"$3"\n', encoding="utf-8")
    docker.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh"], input=script, text=True, env=path, check=True)
    created = {each.name: each.read_text(encoding="utf-8") for each in tmp_path.glob("redbatch_*")}
    assert sorted(created) == ["redbatch_gateway_redis_url_2", "redbatch_redis_acl_2", "redbatch_worker_redis_url_2"]
    digests = newest_digests(created["redbatch_redis_acl_2"])
    for name in ("gateway", "worker"):
        url = re.fullmatch(rf"redis://{name}:({PASSWORD})@redis:6379/0\n", created[f"redbatch_{name}_redis_url_2"])
        assert url is not None
        assert sha256(url[1].encode()).hexdigest() == digests[name]
    for name in ("ops", "admin"):
        url = re.search(rf"^# redis://{name}:({PASSWORD})@redis:6379/0$", script, re.MULTILINE)
        assert url is not None
        assert sha256(url[1].encode()).hexdigest() == digests[name]


def test_several_redis_have_the_same_users() -> None:
    """With several hosts, each URL is a list for REDBATCH_REDIS_SHARDS, with one password."""
    script = output_of("swarm", "secrets", "--host", "redis", "--host", "redis2")
    for name in ("gateway", "worker", "ops", "admin"):
        (url,) = re.findall(rf"^(?:# )?(redis://{name}:\S+)$", script, re.MULTILINE)
        first, second = url.split(",")
        assert re.fullmatch(rf"redis://{name}:{PASSWORD}@redis:6379/0", first)
        assert second == first.replace("@redis:", "@redis2:")


@pytest.mark.parametrize(
    ("command_words", "advice"),
    [(("k8s",), "pipe them: | kubectl apply --server-side -f -"), (("swarm",), "write them to a file, as --help says")],
)
def test_a_terminal_gets_a_warning_about_passwords(command_words: tuple[str], advice: str) -> None:
    """On a terminal, a warning says how to avoid the display of passwords; stdout has them nevertheless."""
    terminal, child_end = pty.openpty()
    command = [sys.executable, "-P", "-m", "redbatch", *command_words, "secrets"]
    try:
        with subprocess.Popen(command, stdout=child_end, stderr=subprocess.PIPE, text=True) as process:
            os.close(child_end)
            output = b""
            while chunk := _read(terminal):
                output += chunk
            assert process.stderr is not None
            (line,) = process.stderr.read().splitlines()
    finally:
        os.close(terminal)
    assert b"user gateway reset on" in output
    assert line.startswith("redbatch: these are passwords")
    assert advice in line


def _read(terminal: int) -> bytes:
    """Reads from a terminal; returns b"" after the other end was closed, which Linux reports as EIO."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


def test_k8s_secrets_for_sentinels_have_their_users_and_urls(tmp_path: Path) -> None:
    """URLs name the sentinels of all pods; replicas and sentinels have passwords, which change as all others do."""
    text = output_of("k8s", "secrets", "--sentinel", "--namespace", "mine")
    secrets = parse_secrets(text)
    assert sorted(secrets["redis-peers"]) == ["replica", "sentinel"]
    for name in ("gateway", "worker", "ops", "admin"):
        url = secrets[f"{name}-redis"]["url"]
        assert find_url_problem(url) == ""
        nodes = [f"redis-{number}.redis-pods.mine.svc:26379" for number in range(3)]
        assert [str(node) for node in parse_url(url).nodes] == nodes
        assert re.fullmatch(rf"redis\+sentinel://{name}:{PASSWORD}@\S+/redbatch/0", url)
    users = secrets["redis-users"]["users.acl"]
    for name, password in secrets["redis-peers"].items():
        assert f"user {name} reset on #{sha256(password.encode()).hexdigest()} resetchannels" in users
    (tmp_path / "users.acl").write_text(users, encoding="utf-8")
    kept = parse_secrets(output_of("k8s", "secrets", "--sentinel", "--keep", f"{tmp_path}/users.acl"))
    (tmp_path / "users.acl").write_text(kept["redis-users"]["users.acl"], encoding="utf-8")
    assert len(re.findall(r"^user replica reset on #\S+ #\S+ ", kept["redis-users"]["users.acl"], re.MULTILINE)) == 1
    dropped = yaml.safe_load(output_of("k8s", "secrets", "--sentinel", "--drop-old", f"{tmp_path}/users.acl"))
    assert dropped["stringData"]["users.acl"].count("#") == 7


def test_sentinels_can_be_added_to_the_users_of_one_redis(tmp_path: Path) -> None:
    """A file without replicas has no passwords of theirs to keep."""
    (tmp_path / "users.acl").write_text(parse_secrets(output_of("k8s", "secrets"))["redis-users"]["users.acl"])
    assert "redis-peers" in parse_secrets(output_of("k8s", "secrets", "--sentinel", "--keep", f"{tmp_path}/users.acl"))


def test_k8s_secrets_for_a_redis_cluster_name_its_servers() -> None:
    """Those of --host, at the same port, with or without TLS."""
    for options, scheme in (((), "redis+cluster"), (("--tls",), "rediss+cluster")):
        secrets = parse_secrets(output_of("k8s", "secrets", "--cluster", "--host", "n1,n2", "--port", "7000", *options))
        url = secrets["gateway-redis"]["url"]
        assert (find_url_problem(url), parse_url(url).kind) == ("", Kind.CLUSTER)
        assert re.fullmatch(rf"{re.escape(scheme)}://gateway:{PASSWORD}@n1:7000,n2:7000", url)
    assert "--cluster and --sentinel exclude each other" in error_line("k8s", "secrets", "--cluster", "--sentinel")
    assert "--host n1,: use the name" in error_line("k8s", "secrets", "--cluster", "--host", "n1,")
    assert "--host n1,n2: use the name" in error_line("k8s", "secrets", "--host", "n1,n2")


@pytest.mark.parametrize("option", [("--tls",), ("--host", "other"), ("--port", "6380")])
def test_sentinels_have_a_fixed_address(option: tuple[str, ...]) -> None:
    """That of the component's pods, which have no TLS."""
    assert "--sentinel excludes --host, --port and --tls" in error_line("k8s", "secrets", "--sentinel", *option)
