"""The benchmarks run `redbatch bench` in a separate process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench import redbatch_bench
from bench.wrk import GeneratorError

Completed = subprocess.CompletedProcess[str]


def command(code: int, *, writes: bool) -> Callable[..., Completed]:
    """Returns a replacement of subprocess.run that ends with this exit status and may write results."""

    def run(words: Sequence[str], **_options: object) -> Completed:
        if writes:
            Path(words[words.index("--out") + 1]).write_text(json.dumps({"measured": {}}), encoding="utf-8")
        return Completed(words, code, "", "cannot connect\n")

    return run


@pytest.mark.parametrize(
    ("code", "writes", "may_fail", "fails"),
    [(0, True, False, False), (1, True, False, True), (1, True, True, False), (1, False, True, True)],
)
def test_a_failed_command_is_an_error_unless_it_may_fail_and_writes_results(
    monkeypatch: pytest.MonkeyPatch, code: int, *, writes: bool, may_fail: bool, fails: bool
) -> None:
    """Without a good answer the exit status is 1, which is a result under overload; a missing file is none."""
    monkeypatch.setattr(subprocess, "run", command(code, writes=writes))
    if fails:
        with pytest.raises(GeneratorError, match="redbatch bench failed: cannot connect"):
            redbatch_bench.run("http://127.0.0.1:1", may_fail=may_fail)
    else:
        assert redbatch_bench.run("http://127.0.0.1:1", may_fail=may_fail) == {"measured": {}}
