"""`redbatch size` as text, as JSON, and its errors."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from api.dialects.vectors import dump_json
from redbatch.bench.texts import SPECIAL_TOKENS, built_in_texts
from redbatch.size.command import compute, find_speed, show_size
from redbatch.size.estimate import (
    BYTES_PER_JSON_NUMBER,
    BYTES_PER_TOKEN,
    GATEWAY,
    REDIS,
    WORKER,
    Requirements,
    WorkerSpeed,
)
from redbatch.size.figures import read_measured
from redbatch.size.view import SizeView, as_json, as_text

DOCS = Path(__file__).parents[4] / "docs"
NEEDED = Requirements(2_000, 1, 15, 384, 0.3)
MEASURED = read_measured()


def view_of(needed: Requirements = NEEDED, model: str = "minilm", vectors_per_s: float | None = None) -> SizeView:
    """Returns the result of the command."""
    return compute(needed, model, vectors_per_s)


def text_of(view: SizeView, width: int = 80) -> str:
    """Returns the text on a terminal of a width, without spaces at the ends of lines."""
    output = io.StringIO()
    Console(file=output, width=width, highlight=False).print(as_text(view))
    return re.sub(r" +$", "", output.getvalue(), flags=re.MULTILINE)


def test_the_figures_are_those_of_the_document() -> None:
    """`make bench` writes both: the table of the cost of a request, and that of Redis with an append-only file."""
    page = (DOCS / "measurements.md").read_text(encoding="utf-8")
    cpu_us = MEASURED.cpu_us
    request = f"| 64 | 1 | {cpu_us['gateway']:.0f} | {cpu_us['worker']:.1f} | {cpu_us['engine']:.1f} |"
    assert request in page
    assert f"| {MEASURED.redis_in_bytes:,.0f} | {MEASURED.redis_out_bytes:,.0f} |" in page
    assert f"| null | everysec | 8 | 64 | {cpu_us['redis']:.1f} (" in page
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    for mix, speed in zip(("short", "mixed"), MEASURED.models["minilm"].speeds, strict=True):
        assert f"| {mix} | 64 | {speed.vectors_per_s:.0f} (" in page
    assert f"cost: {MEASURED.source.started} UTC, commit {MEASURED.source.commit}" in page


def test_json_is_one_line_with_limits_and_source() -> None:
    """Numbers as numbers; a model that costs nothing has no speed rather than an infinite one."""
    line = as_json(view_of(Requirements(20_000, 1, 15, 384, 0.3), "null"))
    assert "\n" not in line
    result = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (result["model"], result["rate"], result["vectors_per_s_per_worker"]) == ("null", 20_000, None)
    assert result["reached"] == [GATEWAY, REDIS, WORKER]
    assert result["parts"]["redis"]["processes"] == 3
    assert result["parts"]["redis"]["full_at_requests_per_s"] == pytest.approx(1e6 / MEASURED.cpu_us["redis"])
    assert result["measured"]["commit"] == MEASURED.source.commit


@pytest.mark.parametrize("vectors_per_s", [None, 50_000])
def test_text_names_every_limit_in_80_columns(vectors_per_s: float | None) -> None:
    """Those of one gateway, one worker process and one Redis, with their rates; exceeded ones say what follows."""
    text = text_of(view_of(Requirements(200_000, 1, 15, 384, 0.3), vectors_per_s=vectors_per_s))
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"gateway +143 µs +6,997 requests/s +exceeded: 41 gateways", text)
    assert re.search(r"Redis +72 µs +13,883 requests/s +exceeded: 21 shards", text)
    state = "not exceeded" if vectors_per_s is None else "exceeded: sets the number of workers"
    assert re.search(rf"worker process +61 µs +16,342 requests/s +{state}", text)
    assert "docs/scaling.md" in text


@pytest.mark.parametrize(
    ("needed", "vectors_per_s", "note"),
    [
        (NEEDED, 5_000, "No figure of this command was measured on a GPU."),
        (Requirements(10, 2, 15, 384, 0.3), None, "Each input counts as a request of one"),
        (Requirements(10, 1, 15, 768, 0.3), None, "measured with vectors of 384 numbers"),
        (Requirements(10, 1, 40, 384, 0.3), None, "longer texts are extrapolated"),
    ],
)
def test_what_was_not_measured_is_said(needed: Requirements, vectors_per_s: float | None, note: str) -> None:
    """Each where it applies, and not otherwise."""
    assert note in text_of(view_of(needed, vectors_per_s=vectors_per_s), width=400)
    assert note not in text_of(view_of(), width=400)


def test_a_speed_of_the_user_is_not_extrapolated() -> None:
    """It is that of the user's texts, also for a model that was measured with shorter ones."""
    text = text_of(view_of(Requirements(10, 1, 300, 384, 0.3), vectors_per_s=5_000), width=400)
    assert "extrapolated" not in text


def test_an_unknown_model_needs_its_speed(capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the option, the commands that measure it, and the known models; with the option it works."""
    assert show_size(NEEDED, "intfloat/e5-small-v2", None, in_json=False) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    for words in ("--model intfloat/e5-small-v2", "redbatch bench", "redbatch tune", "minilm, null"):
        assert words in printed.err
    assert "--vectors-per-s-per-worker" in printed.err
    assert show_size(NEEDED, "intfloat/e5-small-v2", 1_000, in_json=True) == 0
    assert json.loads(capsys.readouterr().out)["parts"]["worker"]["processes"] == 3


def test_other_names_of_the_bundled_model_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    """As for a worker; a given speed overrides the measured one."""
    assert show_size(NEEDED, "sentence-transformers/all-MiniLM-L6-v2", None, in_json=True) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "minilm"
    assert find_speed("minilm", 9_000, 15, MEASURED) == WorkerSpeed(9_000, None)


def test_bytes_of_texts_and_numbers_are_those_of_the_program() -> None:
    """The texts of `redbatch bench`, and vectors as a gateway writes them."""
    texts = [text for (text,) in built_in_texts("mixed", 1, 1)]
    tokens = sum(len(text.split()) + SPECIAL_TOKENS for text in texts)
    assert sum(map(len, texts)) / tokens == pytest.approx(BYTES_PER_TOKEN, rel=0.05)
    vectors = np.random.default_rng(1).normal(size=(100, 768)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert len(dump_json(vectors)) / vectors.size == pytest.approx(BYTES_PER_JSON_NUMBER, rel=0.05)
