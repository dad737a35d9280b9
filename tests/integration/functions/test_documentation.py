"""docs/functions.md: its classes run, its image has what a worker needs, and its overlays are valid."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from tests import plain_http
from tests.integration.functions.conftest import EXAMPLES, ROOT
from tests.integration.gateway.gateway_cluster import GatewayCluster, metric
from tests.waiting import wait_until

PAGE = (ROOT / "docs/functions.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Returns the code blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_classes_of_the_page_run() -> None:
    """As they stand, with their imports."""
    names: dict[str, Any] = {}
    classes = "\n".join(each for each in blocks("python") if not each.startswith(("# test_", "# make_")))
    exec(compile(classes, "docs/functions.md", "exec"), names)  # noqa: S102 - our own page
    assert names["Squares"]().transform([2, 3]) == [4, 9]
    photo = BytesIO()
    Image.new("RGB", (300, 200), (200, 200, 200)).save(photo, "PNG")
    images = names["Brightness"]()
    assert images.transform([images.preprocess_input(photo.getvalue())]) == [200]


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_what_is_no_image_is_refused(cluster: GatewayCluster, tmp_path: Path) -> None:
    """The class of the page answers 400 and what to send, to a text, a part of an image, and JSON."""
    [code] = [each for each in blocks("python") if each.startswith("# brightness.py\n")]
    (tmp_path / "brightness.py").write_text(code)
    cluster.environment["PYTHONPATH"] = f"{ROOT}:{tmp_path}"
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("brightness:Brightness"))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    png = BytesIO()
    Image.effect_noise((300, 200), 50).save(png, "PNG")
    binary = {"Content-Type": "application/octet-stream"}
    for content in (b"no image", png.getvalue()[:60], png.getvalue()[:2_000], png.getvalue()[:20] + bytes(2_000)):
        answer = plain_http.post(f"{gateway.url}/predict", content=content, headers=binary, timeout=60)
        assert (answer.status_code, "send a complete PNG or JPEG" in answer.text) == (400, True), answer.text
    answer = plain_http.post(f"{gateway.url}/predict", json={"input": "photo.png"}, timeout=60)
    assert (answer.status_code, "Send an image as application/octet-stream" in answer.text) == (400, True), answer.text
    answer = plain_http.post(f"{gateway.url}/predict", content=png.getvalue(), headers=binary, timeout=60)
    assert answer.status_code == 200, answer.text


def test_the_test_of_the_page_runs(tmp_path: Path) -> None:
    """With its command, beside a file with the class."""
    [class_block] = [each for each in blocks("python") if "class Squarer:" in each]
    [test_block] = [each for each in blocks("python") if each.startswith("# test_squarer.py\n")]
    (tmp_path / "squarer.py").write_text(class_block)
    (tmp_path / "test_squarer.py").write_text(test_block)
    [command] = re.findall(r"^python (test_squarer\.py) +#", PAGE, re.MULTILINE)
    environment = {**os.environ, "PYTHONPATH": ""}
    output = subprocess.check_output([sys.executable, command], cwd=tmp_path, env=environment, text=True, timeout=60)
    assert output == "passed\n"


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_the_three_lines_of_the_image_serve_the_class(cluster: GatewayCluster, tmp_path: Path) -> None:
    """A worker with the files and variables of the image, started elsewhere, finds the class."""
    [dockerfile] = blocks("dockerfile")
    assert len(dockerfile.splitlines()) == 3
    [(file, folder)] = re.findall(r"^COPY (\S+) /(\S+)$", dockerfile, re.MULTILINE)
    target = tmp_path / folder
    target.mkdir(parents=True)
    (target / file).write_bytes((EXAMPLES / file).read_bytes())
    [variables] = re.findall(r"^ENV (.+)$", dockerfile, re.MULTILINE)
    image = dict(each.split("=", 1) for each in shlex.split(variables))
    cluster.environment["PYTHONPATH"] = f"{ROOT}:{tmp_path}{image.pop('PYTHONPATH')}"
    gateway = await cluster.start_gateway()
    await cluster.start_worker(image.pop("REDBATCH_MODEL"))
    assert not image
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    answer = plain_http.post(f"{gateway.url}/predict", json={"inputs": [2, 3]}, timeout=60)
    assert answer.json() == {"outputs": [4.0, 9.0]}


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("max_batch_size", [1, None])
async def test_the_load_of_the_page_runs_in_batches(
    max_batch_size: int | None, cluster: GatewayCluster, tmp_path: Path
) -> None:
    """Its two commands, with the worker's own limit or without batches: all requests are answered."""
    [up] = re.findall(r"^redbatch up (--model .* --model-args .*?) +#", PAGE, re.MULTILINE)
    [bench] = re.findall(r"^redbatch (bench http://\S+ --path .*)$", PAGE, re.MULTILINE)
    flags = shlex.split(up)
    settings = dict(zip((each.removeprefix("--").replace("-", "_") for each in flags[::2]), flags[1::2], strict=True))
    settings |= {} if max_batch_size is None else {"max_batch_size": str(max_batch_size)}
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(settings.pop("model"), **settings)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    command, _url, *arguments = shlex.split(bench)
    load = [command, gateway.url, *arguments, "--warmup", "0s", "--requests", "200", "--out", "run.json"]
    program = await asyncio.create_subprocess_exec(sys.executable, "-P", "-m", "redbatch", *load, cwd=tmp_path)
    assert await program.wait() == 0
    measured = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["measured"]
    assert (measured["ok"], measured["errors"]) == (200, {})
    batches, inputs = metric(worker, "redbatch_batch_size_count"), metric(worker, "redbatch_batch_size_sum")
    assert inputs == 200
    assert batches == 200 if max_batch_size == 1 else batches < 200 / 4


def test_the_stack_file_for_the_cpu_names_the_worker() -> None:
    """It changes a variable that the stack sets."""
    [name] = re.findall(r"add `-c (\S+)`", PAGE)
    [(service, change)] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))["services"].items()
    assert "${REDBATCH_WORKER_VERSION:" in change["image"], "the image of the class stays"
    stack = yaml.safe_load((ROOT / "swarm/stack.yml").read_text(encoding="utf-8"))["services"][service]
    assert change["environment"].items() - stack["environment"].items()
    assert change["environment"].keys() <= stack["environment"].keys()
    [constraint] = stack["deploy"]["placement"]["constraints"]
    label = constraint.removeprefix("node.labels.").replace(" == ", "=")
    deploy = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    for page in (PAGE, deploy):  # without this label no node runs a worker
        assert re.search(rf"`{label}`[^.]*\bCPUs?\b", page)
