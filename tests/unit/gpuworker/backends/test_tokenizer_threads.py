"""The threads of the tokenizers library, in separate processes: its pool lives as long as its process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

THREADS = 3
VARIABLES = ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS")

TOKENIZE = """
import os
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
Tokenizer(WordLevel({"a": 0}, unk_token="a")).encode_batch_fast(["a"] * 8)
print(len(os.listdir("/proc/self/task")) - 1)
"""
SET = "from gpuworker.backends.tokenizer_threads import set_tokenizer_threads; set_tokenizer_threads({})"
LOAD = """
import importlib, os
from contextlib import suppress
from dataclasses import replace
from gpuworker.backends.selection import load_backend
from gpuworker.model_spec import ModelLoadError, parse_model
from tests.unit.gpuworker.backends.options import OPTIONS
for name in parse_model("minilm").preload:
    importlib.import_module(name)
def load(device, cores):
    with suppress(ModelLoadError):  # without a GPU
        load_backend(parse_model("minilm"), replace(OPTIONS, device=device, cores=cores, prepack=False))
"""
FORK = """
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
else:
    {}
    print(end="", flush=True)
    os._exit(0)
"""


def run(code: str, **environment: str) -> list[int]:
    """Returns the numbers that a process prints that runs this code."""
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-c", code]
    completed = subprocess.run(
        command, env=inherited | environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert completed.returncode == 0, completed.stderr
    return [int(line) for line in completed.stdout.split()]


def threads_after(code: str, **environment: str) -> int:
    """Returns how many threads a process has beside its first after this code, and a call of the library."""
    (threads,) = run(code + TOKENIZE, **environment)
    return threads


def threads_in_engines(*codes: str) -> list[int]:
    """Returns the same for processes that fork from one that has imported torch, as engines do."""
    in_forks = [FORK.format((code + TOKENIZE).replace("\n", "\n    ")) for code in codes]
    return run(LOAD + "".join(in_forks))


def test_one_thread_is_the_callers() -> None:
    """The library starts none."""
    assert threads_after(SET.format(1)) == 0


def test_several_threads_are_as_many_as_set() -> None:
    """The library's default would be the cores of the machine."""
    assert threads_after(SET.format(THREADS)) == THREADS


@pytest.mark.parametrize("threads", [1, THREADS])
def test_the_environment_comes_first(threads: int) -> None:
    """A user's variables override the engine's values."""
    assert threads_after(SET.format(threads), TOKENIZERS_PARALLELISM="false") == 0
    assert threads_after(SET.format(threads), TOKENIZERS_PARALLELISM="true", RAYON_NUM_THREADS="2") == 2


@pytest.mark.long
@pytest.mark.model
def test_beside_a_gpu_the_tokenizer_has_a_thread_for_each_core() -> None:
    """That is, for each core of the engine. Without a GPU no model is loaded, and the library is ready all the same."""
    few, many = threads_in_engines(*(f'load("cuda:0", {cores})' for cores in (1 + THREADS, 11 + THREADS)))
    assert many - few == 10


@pytest.mark.long
@pytest.mark.model
def test_beside_a_model_on_a_cpu_the_tokenizer_has_no_threads() -> None:
    """They would compete with the model's."""
    few, many = threads_in_engines(
        *(f'os.environ["RAYON_NUM_THREADS"] = "{number}"; load("cpu", 1)' for number in (1, 11))
    )
    assert many == few
