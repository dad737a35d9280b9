"""`redbatch up` as a real process, with a private Redis, gateways and workers, and the null model."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import redis

from gpuworker.model_spec import FORMS
from shared.process.listener import listen
from tests import plain_http
from tests.gpu_driver import FAKE_DRIVER
from tests.integration.up.up_process import (
    START_S,
    Start,
    run_command,
    running,
    serves,
    start_worker,
    vector,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
REDIS_VARIABLE = "REDBATCH_REDIS_URL"
TITLES = ("redbatch gateway", "redbatch worker")
FAILING_CLASS = """
class Failing:
    def transform(self, batch):
        raise ValueError(f"cannot read {batch}")
"""


def time_of(message: str, output: str) -> str:
    """Returns the time of the line of a log with a message."""
    (line,) = (each for each in output.splitlines() if message in each)
    (found,) = re.findall(r'"ts": ?"([^"]+)"', line)
    return str(found)


async def test_it_serves_and_leaves_nothing(start: Start) -> None:
    """The printed request works, `ps` shows process titles, Ctrl-C ends with code 0 and leaves no process or folder.

    Redis has nothing to say.
    """
    up = await start("--gateways", "2", "--workers", "2").wait_until_ready()
    assert await up.embed() == pytest.approx(vector("hello"), abs=1e-6)
    await wait_until(lambda: [len(up.children(title)) for title in TITLES] == [2, 2], "all have their titles")
    processes = up.all_descendants()
    up.process.send_signal(signal.SIGINT)
    assert await up.wait_until_ended() == 0
    await wait_until(lambda: running(processes) == [], "all of its processes are gone")
    assert list(up.folder.iterdir()) == []
    assert "\nredis " not in f"\n{up.output}"


@pytest.mark.parametrize("is_activated", [False, True])
async def test_it_says_how_to_have_the_command_on_the_path(start: Start, tmp_path: Path, is_activated: bool) -> None:
    """As the last line about a cluster that is ready, unless the environment is activated."""
    programs = Path(sys.executable).parent
    path = f"{tmp_path}/servers:{programs}:/usr/bin:/bin" if is_activated else f"{tmp_path}/servers:/usr/bin:/bin"
    up = await start(PATH=path).wait_until_ready()
    assert await serves(up)
    block = up.output[up.output.index("Redbatch is ready") :].split("\n\n")[0]
    line = f"PATH     source {programs}/activate  (puts `redbatch` on the PATH of a terminal)"
    assert block.splitlines()[-1].strip() == ("stop     Ctrl-C" if is_activated else line)


@pytest.mark.parametrize("messages", ["off", "log"])
async def test_it_says_what_the_log_has_of_exceptions(start: Start, folder: Path, messages: str) -> None:
    """Of those of a class, by default without the messages, which may quote inputs."""
    (folder / "failing.py").write_text(FAILING_CLASS)
    options = () if messages == "off" else ("--error-messages", messages)
    up = await start("--model", "failing:Failing", *options).wait_until_ready()
    assert ("--error-messages log adds" in up.fact("log")) is (messages == "off")
    assert "in place of 1" in up.fact("input")
    api = up.fact("API").split(" ")[0]
    assert plain_http.post(f"{api}/predict", json={"input": "secret"}).status_code == 500
    await wait_until(lambda: "the model raised an exception" in up.output, "it is logged")
    assert ("secret" in up.output) is (messages != "off")


async def test_with_auth_it_creates_an_api_key(start: Start) -> None:
    """With --auth on, `up` creates an API key in its private Redis, and the printed request contains it."""
    up = await start("--auth", "on").wait_until_ready()
    assert await up.embed() == pytest.approx(vector("hello"), abs=1e-6)
    assert up.fact("key") in up.fact("try it")
    assert up.fact("console").endswith("keys create --scope admin)")
    assert plain_http.get(up.fact("console").split(" ")[0]).status_code == 200
    url = up.fact("API").split(" ")[0]
    assert plain_http.post(f"{url}/embed", json={"text": "a"}).status_code == 401
    up.process.send_signal(signal.SIGINT)
    assert await up.wait_until_ended() == 0


async def test_the_printed_redis_line_shows_the_queue(start: Start) -> None:
    """The printed command, with its quotes, returns the length of the stream, which is zero."""
    up = await start().wait_until_ready()
    words = shlex.split(up.fact("queue"))
    assert words[1:5] == ["-s", unquote(urlsplit(up.fact("Redis")).path), "-n", "0"]
    assert words[5:] == ["XLEN", "rb:{null}:q:interactive"]
    with redis.Redis.from_url(up.fact("Redis"), protocol=2) as client:
        assert client.execute_command(*words[5:]) == 0


async def test_commands_find_the_running_up(start: Start) -> None:
    """Without a URL, `redbatch queue` shows the workers of this user's `up`, and `redbatch worker` joins these."""
    up = await start().wait_until_ready()
    environment = {name: value for name, value in os.environ.items() if name not in ("XDG_RUNTIME_DIR", REDIS_VARIABLE)}
    environment["TMPDIR"] = str(up.folder)
    command = [sys.executable, "-P", "-m", "redbatch"]

    async def both_ready() -> bool:
        process = await asyncio.create_subprocess_exec(
            *command, "queue", "--json", env=environment, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        return [worker["state"] for worker in json.loads(output)["workers"]] == ["ready", "ready"]

    worker = await asyncio.create_subprocess_exec(
        *command, "worker", "--model", "null", "--admin-port", "0", env=environment
    )
    try:
        await wait_until(both_ready, "both workers are shown as ready", timeout_s=START_S)
    finally:
        worker.terminate()
        await worker.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
async def test_a_worker_that_joined_ends_with_its_up(start: Start, number: signal.Signals) -> None:
    """Its Redis never comes back, so it ends in order and says why; one that got the URL waits for that Redis.

    It ends after the gateways, whose last requests it may have to answer.
    """
    up = await start("--drain-delay-s", "1", "--log-level", "info").wait_until_ready()
    with start_worker(up) as joined, start_worker(up, "--redis-url", up.fact("Redis")) as independent:
        await wait_until(lambda: joined.is_ready and independent.is_ready, "both workers are ready", timeout_s=START_S)
        up.all_descendants()
        up.process.send_signal(number)
        await up.wait_until_ended()
        await wait_until(lambda: joined.process.poll() is not None, "the worker has ended", timeout_s=START_S)
        assert joined.process.returncode == 0, joined.output
        assert "`redbatch up` that this process joined ends" in joined.output
        if number == signal.SIGINT:
            assert time_of("gateway stopped", up.output) < time_of("`redbatch up` that this", joined.output)
        assert up.fact("API").split(" ")[0] in joined.output
        assert "Traceback" not in joined.output
        assert independent.process.poll() is None, independent.output


async def test_a_worker_that_joined_stays_with_a_redis_that_stays(start: Start) -> None:
    """The Redis of `up --redis-url` does not end with that `up`, and neither does a worker that has joined it."""
    up = await start().wait_until_ready()
    other = await start("--redis-url", up.fact("Redis"), "--queue", "second").wait_until_ready()
    port = str(urlsplit(other.fact("API").split(" ")[0]).port)
    with start_worker(other, "--queue", "second", "--up", port) as joined:
        await wait_until(lambda: joined.is_ready, "the worker is ready", timeout_s=START_S)
        other.process.send_signal(signal.SIGINT)
        assert await other.wait_until_ended() == 0
        url, body = up.fact("API").split(" ")[0], {"text": "a", "model": "second"}
        answer = await asyncio.to_thread(plain_http.post, f"{url}/embed", json=body, timeout=START_S)
        assert (answer.status_code, joined.process.poll()) == (200, None), joined.output
        assert "ends with it" not in joined.output


async def test_commands_find_an_up_that_is_still_loading(start: Start, folder: Path) -> None:
    """While its model loads, `redbatch queue` shows the worker that loads it."""
    waits = "import pathlib, time\n        while not pathlib.Path('go').exists(): time.sleep(0.1)"
    (folder / "slow.py").write_text(f"class Model:\n    def __init__(self):\n        {waits}\n")
    up = start("--model", "slow:Model")
    states: list[str] = []

    async def loading() -> bool:
        code, output, errors = await run_command(up, "queue", "--json")
        states[:] = [errors] if code else [each["state"] for each in json.loads(output)["workers"]]
        return states == ["loading"]

    await wait_until(loading, lambda: f"a loading worker is shown: {states}", timeout_s=START_S)
    assert not up.fact("stop")


async def test_several_run_side_by_side(start: Start) -> None:
    """Two `up` of a user are both found: commands take --up, or list the choices; a killed one is no choice."""
    first = await start().wait_until_ready()
    second = await start("--queue", "second", "--auth", "on").wait_until_ready()
    port = second.fact("API").split(" ")[0].rpartition(":")[2]
    assert second.fact("watch").endswith(f"queue --watch --up {port}")
    code, _, errors = await run_command(first, "queue", "--json")
    assert code == 1
    assert f"--up {port} (second, http://127.0.0.1:{port})" in errors
    code, _, worker_errors = await run_command(first, "worker", "--model", "null")
    assert (code, worker_errors) == (1, errors)
    for words, expected in (
        (("queue", "--json"), '"queue": "second"'),
        (("keys", "list", "--json"), '"name": "redbatch up"'),
        (("bench", "--requests", "20", "--header", f"Authorization: Bearer {second.fact('key')}"), "20"),
    ):
        code, output, errors = await run_command(first, *words, "--up", port)
        assert code == 0, errors
        assert expected in output
    first.all_descendants()
    first.process.kill()
    first.process.wait()
    code, output, errors = await run_command(first, "queue", "--json")
    assert code == 0, errors
    assert json.loads(output)["queue"] == "second"


async def test_it_prints_where_metrics_are(start: Start) -> None:
    """The printed URLs serve the metrics of each process; a gateway's 404 for /metrics names the same port."""
    up = await start("--workers", "2").wait_until_ready()
    urls = dict(re.findall(r"(\S+)/metrics \((\S+)\)", up.fact("metrics")))
    ports = {name: url.rpartition(":")[2] for url, name in urls.items()}
    assert sorted(ports) == ["gateway-1", "worker-1", "worker-2"]
    for url, name in urls.items():
        metric = "redbatch_redis_up" if name == "gateway-1" else "redbatch_worker_up"
        assert metric in plain_http.get(f"{url}/metrics").text
    answer = plain_http.get(f"{up.fact('API').split(' ')[0]}/metrics")
    assert answer.status_code == 404
    assert f"on its admin port, {ports['gateway-1']}." in answer.text


async def test_hidden_admin_ports_are_not_passed_over(start: Start) -> None:
    """Where the log level hides the admin ports, the fact says how to see them."""
    up = await start("--log-level", "error").wait_until_ready()
    assert "--log-level info" in up.fact("metrics")


async def test_taken_admin_ports_are_refused(start: Start) -> None:
    """Otherwise a gateway would start again and again, while `up` says that it is ready."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        for first in (port, port - 1, 65_535):  # of the last two the second process has none
            up = start("--admin-port", str(first), "--workers", "2")
            assert await up.wait_until_ended() == 1, up.output
            assert f"is not free: 3 processes take the ports {first} to {first + 2}" in up.output


@pytest.mark.parametrize("title", ["redbatch worker", "redbatch gateway", ""])
async def test_a_killed_child_is_restarted(title: str, start: Start) -> None:
    """A killed worker, gateway or Redis (title "") has a successor, and requests are served again."""
    up = await start().wait_until_ready()
    children = up.children(title) if title else [each for each in up.children() if each not in up.children("redbatch")]
    (victim,) = children
    before = {each.pid for each in up.children()}
    victim.kill()
    await wait_until(lambda: len({each.pid for each in up.children()} - before) == 1, "the child has a successor")
    await wait_until(lambda: serves(up), "requests are served again", timeout_s=START_S)


async def test_the_children_of_a_killed_up_end(start: Start) -> None:
    """After kill -9 of `up`, which can no longer stop its children, the kernel ends them."""
    up = await start("--workers", "2").wait_until_ready()
    processes = up.all_descendants()
    up.process.kill()
    up.process.wait()
    await wait_until(lambda: running(processes) == [], "all of its processes are gone", timeout_s=START_S)


async def test_a_second_ctrl_c_kills(start: Start) -> None:
    """A second Ctrl-C ends the drain with code 130 and leaves no process or folder."""
    up = await start("--drain-delay-s", "60").wait_until_ready()
    processes = up.all_descendants()
    up.process.send_signal(signal.SIGINT)
    await wait_until(lambda: "Ctrl-C again" in up.output, "the cluster drains")
    up.process.send_signal(signal.SIGINT)
    assert await up.wait_until_ended() == 130
    await wait_until(lambda: running(processes) == [], "all of its processes are gone")
    assert list(up.folder.iterdir()) == []


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("nowhere:Model", "model nowhere:Model: there is no module nowhere"),
        ("no-one/model", "model no-one/model is no folder in "),
    ],
)
async def test_a_model_that_cannot_be_loaded_ends_up(model: str, reason: str, log_format: str, start: Start) -> None:
    """It ends `up` with exit code 1 and the reason as the last line, which says it once, without restarts."""
    up = start("--model", model, "--log-format", log_format, HF_ENDPOINT="http://127.0.0.1:9", HF_HUB_OFFLINE="0")
    assert await up.wait_until_ended() == 1
    last = up.output.splitlines()[-1]
    assert last.startswith(f"redbatch: worker-1 cannot run: the model cannot be served: {reason}")
    assert up.output.count(reason) == 1
    assert "starting again" not in up.output
    assert list(up.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("many.py:Squarer", "a Python class is named module:Class, here many:Squarer"),
        ("/nowhere/model", f"there is no such folder, and it is no name of the hub. {FORMS}"),
    ],
)
async def test_a_model_that_is_not_named_rightly_starts_nothing(start: Start, model: str, reason: str) -> None:
    """The only line is the reason."""
    up = start("--model", model)
    assert await up.wait_until_ended() == 2
    assert up.output.splitlines() == [f"redbatch: model {model}: {reason}"]
    assert list(up.folder.iterdir()) == []


async def test_a_class_that_cannot_be_made_shows_its_traceback(start: Start, folder: Path) -> None:
    """The log shows where the class raised; the last line is the reason, without a traceback."""
    (folder / "broken.py").write_text("class Model:\n    def __init__(self): open('/nowhere/weights')\n")
    up = start("--model", "broken:Model")
    assert await up.wait_until_ended() == 1
    *lines, last = up.output.splitlines()
    assert re.search(r"the class cannot be made.*broken\.py.*, line 2, in __init__", "\n".join(lines), re.DOTALL)
    assert last.startswith("redbatch: worker-1 cannot run: the model cannot be served: model broken:Model")
    assert "/nowhere/weights" in last


@pytest.mark.parametrize(
    ("code", "trace"),
    [
        ("threading.Thread(target=lambda: 1 / 0).start(); time.sleep(60)", r"line 4, in <lambda>.*ZeroDivisionError"),
        ("threading.Thread(target=sys.exit).start(); time.sleep(60)", r"SystemExit"),
        ("sys.exit('the weights are gone')", r"line 4, in __init__.*SystemExit: the weights are gone"),
    ],
    ids=["thread", "exit-of-a-thread", "exit"],
)
async def test_an_unexpected_exception_is_one_record(code: str, trace: str, start: Start, folder: Path) -> None:
    """A user's class ends the engine while it is made: the traceback does not lie between the records of the log."""
    (folder / "ends.py").write_text(
        f"import sys, threading, time\nclass Model:\n    def __init__(self):\n        {code}\n"
    )
    up = start("--model", "ends:Model")
    await wait_until(lambda: "engine died" in up.output, "the engine has died", timeout_s=START_S)
    up.process.send_signal(signal.SIGINT)
    await up.wait_until_ended()
    lines = [line.partition(" | ")[2] for line in up.output.splitlines() if line.startswith("worker-1 ")]
    traces = [each.get("exception", "") for each in map(json.loads, lines)]
    assert re.search(trace, "".join(traces), re.DOTALL)


async def test_a_model_that_loads_long_is_reported_once(start: Start, folder: Path) -> None:
    """`up` prints the step and its seconds: the worker's own line would say the same once more."""
    (folder / "slow.py").write_text(
        "import time\nclass Model:\n    def __init__(self): time.sleep(6.5)\n    def transform(self, x): return x\n"
    )
    up = start("--model", "slow:Model")
    await up.wait_until_ready()
    assert "loading model slow:Model (" in up.output
    assert "engine ready" in up.output
    assert "the model is still loading" not in up.output


async def test_a_port_in_use_is_one_error_line(start: Start) -> None:
    """A port in use ends `up` with exit code 1 and one line that names --port, before any process is started."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        up = start("--port", str(other.getsockname()[1]))
        assert await up.wait_until_ended() == 1
    (line,) = up.output.splitlines()
    assert "--port" in line


@pytest.mark.parametrize("environment", [{}, {"PYTHONPATH": "."}])
async def test_packages_in_the_current_folder_are_ignored(
    environment: dict[str, str], folder: Path, start: Start
) -> None:
    """No process imports packages named api, gpuworker or shared from the current folder."""
    for name in ("api", "gpuworker", "shared"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('imported from the current folder')")
    up = await start(**environment).wait_until_ready()
    assert await up.embed() == pytest.approx(vector("hello"), abs=1e-6)
    assert "imported from the current folder" not in up.output


async def test_every_setting_is_a_flag(start: Start) -> None:
    """A flag of `up` reaches the process to which the setting belongs."""
    up = await start("--max-input-chars", "3", "--max-batch-wait-ms", "1").wait_until_ready()
    url = f"{up.fact('API').split()[0]}/embed"
    assert (await asyncio.to_thread(plain_http.post, url, json={"text": "four"})).status_code == 413


SHOWS_GPU = """
import os, time
class ShowsGpu:
    def transform(self, values):
        time.sleep(0.05)
        return [os.environ["CUDA_VISIBLE_DEVICES"] for _ in values]
"""
"""A function that returns which GPUs its process sees."""


async def test_two_workers_use_two_gpus(start: Start, tmp_path: Path) -> None:
    """Each sees one GPU, by the UUID that the driver reports."""
    (modules := tmp_path / "path").mkdir()
    (modules / "pynvml.py").write_text(FAKE_DRIVER)
    (modules / "shows_gpu.py").write_text(SHOWS_GPU)
    arguments = ("--workers", "2", "--model", "shows_gpu:ShowsGpu", "--max-batch-size", "1")
    up = await start(*arguments, PYTHONPATH=f"{modules}:{ROOT}").wait_until_ready()
    url = f"{up.fact('API').split()[0]}/predict"
    seen: set[str] = set()

    async def both_seen() -> bool:
        async with plain_http.client() as client:
            answers = await asyncio.gather(*(client.post(url, json={"input": number}) for number in range(8)))
        seen.update(answer.json()["output"] for answer in answers)
        return len(seen) == 2

    await wait_until(both_seen, "both workers have answered", timeout_s=START_S)
    assert seen == {"GPU-0", "GPU-1"}
