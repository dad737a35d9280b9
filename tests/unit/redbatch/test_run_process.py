"""Which Redis a process takes that is started by hand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuworker.settings import WorkerSettings
from redbatch.run_process import _with_redis_of_up
from redbatch.up.run_file import Announcement, NoUpError, RunFile

NO_UP = 1
"""No `redbatch up` has this port."""

UP = 8080
SHARDS = "redis://a,redis://b"


@pytest.fixture(autouse=True)
def running_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A running `up` of two Redis, and no variable that names one."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("REDBATCH_REDIS_URL", "REDBATCH_REDIS_SHARDS"):
        monkeypatch.delenv(name, raising=False)
    run_file = RunFile(os.getpid(), f"http://127.0.0.1:{UP}", "", "minilm", False, False, SHARDS)
    announcement = Announcement(run_file)
    yield
    announcement.withdraw()


@pytest.mark.parametrize("name", ["redis_url", "redis_shards"])
def test_a_process_that_has_its_redis_joins_no_up(name: str) -> None:
    """Whether it has one, or one for each shard; without, it takes those of the `up` that runs, or was chosen."""
    given = {name: "redis://c,redis://d"}
    assert _with_redis_of_up(WorkerSettings, given, None) == given
    for up in (None, UP):
        assert _with_redis_of_up(WorkerSettings, {}, up) == {"redis_shards": SHARDS}
    with pytest.raises(NoUpError):
        _with_redis_of_up(WorkerSettings, {}, NO_UP)


def test_options_of_the_connection_are_for_the_redis_of_the_up() -> None:
    """They fit its URLs, which are known only once it is found."""
    given = {"redis_tls_ca": str(Path(__file__))}
    shared = RunFile(os.getpid() + 1, "http://127.0.0.1:8090", "rediss://a", "minilm", has_private_redis=False)
    announcement = Announcement(shared)
    assert _with_redis_of_up(WorkerSettings, given, 8090) == {**given, "redis_url": "rediss://a"}
    announcement.withdraw()


@pytest.mark.parametrize("name", ["redis_url", "redis_shards"])
def test_up_overrides_variables_and_excludes_options(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for all commands: --up wins over a variable, which has no effect then, and is misuse beside an option."""
    variable = f"REDBATCH_{name.upper()}"
    given = {name: "redis://c,redis://d", "queue": "minilm"}
    monkeypatch.setenv(variable, given[name])
    assert _with_redis_of_up(WorkerSettings, given, UP) == {"redis_shards": SHARDS, "queue": "minilm"}
    assert variable not in os.environ
    with pytest.raises(NoUpError, match=f"leave out --{name.replace('_', '-')}"):
        _with_redis_of_up(WorkerSettings, given, UP)
