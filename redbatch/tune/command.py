"""`redbatch tune`: reads what the user wants, runs the search, and says what to set."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuworker.models import ModelLoadError, parse_model
from gpuworker.settings import WorkerSettings
from redbatch.bench.command import check_file, missing_module
from redbatch.bench.texts import InvalidTextsError, request_texts
from redbatch.tune.search_space import Machine, Setting, search_settings
from redbatch.tune.settings import TuneSettings
from redbatch.up.local_redis import LocalRedisError
from shared.process.settings import EXIT_CONFIGURATION, print_error, read_settings

if TYPE_CHECKING:
    from redbatch.tune.report import TuneReport

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def tune(given: Mapping[str, str], p95_ms: float) -> int:
    """Searches and prints what it found.

    Returns the exit code: 0; 1 when nothing keeps the budget or the cluster cannot run; 2 for what makes no sense; 130
    after Ctrl-C.
    """
    settings = read_settings(TuneSettings, {**given, "p95_ms": str(p95_ms)})
    own = {name: value for name, value in given.items() if name in WorkerSettings.model_fields}
    worker = read_settings(WorkerSettings, own)
    missing = missing_module("httptools")
    if missing is not None:
        return _failed(f"{missing} is not installed; pip install 'redbatch[bench]' brings it", EXIT_CONFIGURATION)
    try:
        parse_model(worker.model)
        check_file(settings.out)
        request_texts(settings.texts, settings.mix, settings.seed, settings.inputs_per_request)
    except (ModelLoadError, InvalidTextsError, ValueError) as error:
        return _failed(str(error), EXIT_CONFIGURATION)
    return _run(settings, own, worker)


def _run(settings: TuneSettings, own: dict[str, str], worker: WorkerSettings) -> int:
    from redbatch.bench.run import CannotConnectError
    from redbatch.tune.load_runner import LoadRunner
    from redbatch.tune.progress import TuneProgress
    from redbatch.tune.report import TuneReport, print_report
    from redbatch.tune.search import Search
    from redbatch.tune.testbed import Testbed, TestbedError

    outcome: TuneReport | None = None
    code = 0
    try:
        with _interrupt_on_signals(), TuneProgress() as watch, Testbed(own) as stand:
            loads = LoadRunner(stand.url, settings, watch)
            watch.say(f"loading model {worker.model}")
            served = stand.serve({})
            session = Search(settings, stand, loads, _search_settings(settings, worker, own, served.device), watch)
            outcome = TuneReport(settings, own, session, loads.doubts)
            session.run(served)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except (TestbedError, LocalRedisError, CannotConnectError) as error:
        code = _failed(str(error), EXIT_FAILED)
    if outcome is None:
        return code
    print_report(outcome)
    written = _write_file(outcome)
    return code or written


def _search_settings(
    settings: TuneSettings, worker: WorkerSettings, own: Mapping[str, str], device: str
) -> tuple[Setting, ...]:
    """Returns what to change: nothing that the user has given."""
    machine = Machine(
        device, worker.cores or _available_cores(), has_tokens=parse_model(worker.model).kind == "sentence"
    )
    names = [name for name in settings.knobs if name not in own]
    return search_settings(machine, settings.p95_ms, names)


def _available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """Has SIGTERM and SIGHUP end the search as Ctrl-C does, so that it stops what it has started."""

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_file(outcome: TuneReport) -> int:
    """Writes the file, if one is wanted; returns 1 when that fails, or nothing keeps the budget."""
    from redbatch.tune.report import as_json

    try:
        if outcome.settings.out is not None:
            outcome.settings.out.write_text(as_json(outcome), encoding="utf-8")
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}", EXIT_FAILED)
    return 0 if outcome.verdict is not None and outcome.verdict.winner is not None else EXIT_FAILED


def _failed(message: str, exit_code: int) -> int:
    print_error(message)
    return exit_code
