"""`redbatch tune`: checks the arguments, runs the search, and reports the settings to use."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from gpuworker.model_spec import ModelLoadError, parse_model
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import InvalidTextsError, request_texts
from redbatch.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, report_failure, report_misuse
from redbatch.preconditions import check_file, missing_module
from redbatch.terminal import print_line
from redbatch.tune.search_space import Machine, Setting, search_settings
from redbatch.tune.settings import TuneSettings
from redbatch.up.local_redis import LocalRedisError
from redbatch.up.run_file import find_running_ups
from shared.process.settings import option_of, read_settings

if TYPE_CHECKING:
    from redbatch.tune.report import TuneReport


def tune(overrides: Mapping[str, str], p95_ms: float, *, beside_up: bool, in_json: bool) -> int:
    """Runs the search and prints its result, as tables or as JSON.

    It runs also while a `redbatch up` of this user does, if `beside_up`.

    Returns the exit code: 0; 1 if no candidate keeps the budget, or the cluster or the file for the result fails; 2 for
    invalid arguments, a missing package or a running `redbatch up`; 130 after Ctrl-C.
    """
    settings = read_settings(TuneSettings, {**overrides, "p95_ms": str(p95_ms)})
    worker_settings = {name: value for name, value in overrides.items() if name in WorkerSettings.model_fields}
    worker = read_settings(WorkerSettings, worker_settings)
    missing = missing_module("httptools")
    if missing is not None:
        return report_misuse(f"{missing} is not installed; install it with: pip install -e '.[bench]' in the checkout")
    try:
        parse_model(worker.model, worker.model_revision)
        check_file(option_of("out"), settings.out)
        request_texts(settings.texts, settings.mix, settings.seed, settings.inputs_per_request)
    except InvalidTextsError as error:
        return report_misuse(f"{option_of('texts')}: {error}")
    except (ModelLoadError, ValueError) as error:
        return report_misuse(str(error))
    disturbance = _disturbance()
    if disturbance and not beside_up:
        return report_misuse(f"{disturbance}, or measure beside it with --beside-up")
    report, exit_code = _run(settings, worker_settings, worker, disturbance)
    if report is None:
        return exit_code
    from redbatch.tune.report import as_json, print_report

    if in_json:
        print_line(as_json(report).rstrip())
    else:
        print_report(report)
    file_exit_code = _write_file(report)
    return exit_code or file_exit_code


def _run(
    settings: TuneSettings, worker_settings: dict[str, str], worker: WorkerSettings, disturbance: str | None
) -> tuple[TuneReport | None, int]:
    """Returns what was measured, if it came to that, and the exit code."""
    from redbatch.bench.run import CannotConnectError, RefusedError
    from redbatch.tune.load_runner import LoadRunner
    from redbatch.tune.progress import TuneProgress
    from redbatch.tune.report import TuneReport
    from redbatch.tune.search import Search
    from redbatch.tune.testbed import Testbed, TestbedError

    report: TuneReport | None = None
    exit_code, ended_by = 0, ""
    try:
        with _interrupt_on_signals(), TuneProgress() as progress, Testbed(worker_settings) as testbed:
            runner = LoadRunner(testbed.url, settings, progress)
            if disturbance:
                progress.print_line(f"warning: {disturbance}")
                runner.warnings.add(disturbance)
            progress.set_status(f"loading model {worker.model}")
            worker_start = testbed.start_worker({})
            search = Search(
                settings,
                testbed,
                runner,
                _search_settings(settings, worker, worker_settings, worker_start.device),
                progress,
            )
            report = TuneReport(settings, worker_settings, search, runner.warnings)
            search.run(worker_start)
    except KeyboardInterrupt as interrupt:
        exit_code, ended_by = EXIT_INTERRUPTED, f"Interrupted by {next(iter(interrupt.args), 'Ctrl-C')}"
    except (TestbedError, LocalRedisError, CannotConnectError, RefusedError) as error:
        exit_code, ended_by = report_failure(str(error)), f"Ended by an error ({error})"
    return report and replace(report, ended_by=ended_by), exit_code


def _disturbance() -> str | None:
    """Returns that clusters of this user run on the machine, if so: their work would count as that of a candidate."""
    running = ", ".join(each.url for each in find_running_ups())
    return f"`redbatch up` runs here too and disturbs the measurement: stop {running} first" if running else None


def _search_settings(
    settings: TuneSettings, worker: WorkerSettings, worker_settings: Mapping[str, str], device: str
) -> tuple[Setting, ...]:
    """Returns the settings to search: those that the user has not set."""
    machine = Machine(
        device, worker.cores or _available_cores(), has_tokens=parse_model(worker.model).kind == "sentence"
    )
    names = [name for name in settings.setting_names if name not in worker_settings]
    searched = (
        Setting(each.name, tuple(value for value in each.values if is_valid(worker_settings, each.name, value)))
        for each in search_settings(machine, settings.p95_ms, names)
    )
    return tuple(setting for setting in searched if len(setting.values) > 1)


def is_valid(worker_settings: Mapping[str, str], name: str, value: str | None) -> bool:
    """Returns whether a worker accepts a value beside the settings of the user, such as a `claim_window`."""
    try:
        values: dict[str, Any] = {**worker_settings, **({} if value is None else {name: value})}
        WorkerSettings(**values)
    except ValidationError:
        return False
    return True


def _available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the search like Ctrl-C, so that its processes are stopped."""

    def end(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_file(report: TuneReport) -> int:
    """Writes the result file, if any. Returns 1 if that fails, or if no candidate keeps the budget."""
    from redbatch.tune.report import as_json

    try:
        if report.settings.out is not None:
            report.settings.out.write_text(as_json(report), encoding="utf-8")
    except OSError as error:
        return report_failure(f"{error.filename}: {error.strerror}")
    return 0 if report.confirmation is not None and report.confirmation.winner is not None else EXIT_FAILED
