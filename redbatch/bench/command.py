"""`redbatch bench`: reads what the user wants, runs it, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from redbatch.bench.settings import BenchSettings
from redbatch.bench.target import Target, encode_requests, parse_header, parse_target
from redbatch.bench.texts import request_texts
from shared.process.settings import EXIT_CONFIGURATION, print_error, read_settings

if TYPE_CHECKING:
    from redbatch.bench.run import RunResult

EXIT_FAILED = 1
PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def bench(given: Mapping[str, str], url: str, headers: Sequence[str], *, check: bool) -> int:
    """Runs the load and prints its result.

    Returns the exit code: 0; 1 when the server cannot be reached, no answer was a good one, one that was looked into
    was wrong, or a file cannot be written; 2 for what makes no sense.
    """
    settings = read_settings(BenchSettings, given)
    missing = missing_module("httptools", *(["matplotlib"] if settings.plot else []))
    if missing is not None:
        return _failed(f"{missing} is not installed; pip install 'redbatch[bench]' brings it", EXIT_CONFIGURATION)
    from redbatch.bench.run import CannotConnectError, RunSpec, run

    try:
        target = parse_target(url)
        requests = _requests(settings, target, [parse_header(each) for each in headers])
        _check_files(settings)
    except ValueError as error:
        return _failed(str(error), EXIT_CONFIGURATION)
    from redbatch.bench.progress import LoadProgress

    try:
        with LoadProgress(settings) as watch:
            result = run(RunSpec(settings, target, requests, check), watch)
    except CannotConnectError as error:
        return _failed(f"cannot connect to {target.url}: {error}", EXIT_FAILED)
    from redbatch.bench.report import print_result

    print_result(result)
    return max(_write_files(result), _judge(result))


def _requests(settings: BenchSettings, target: Target, headers: list[tuple[str, str]]) -> list[bytes]:
    """Returns the requests as bytes. Raises ValueError when the texts cannot be read."""
    if settings.timeout_ms is not None:
        headers = [*headers, ("X-Timeout-Ms", str(settings.timeout_ms))]
    return encode_requests(
        target, headers, request_texts(settings.texts, settings.mix, settings.seed, settings.inputs_per_request)
    )


def missing_module(*names: str) -> str | None:
    """Returns the first of these modules that is not installed, if any."""
    for name in names:
        try:
            __import__(name)
        except ModuleNotFoundError:
            return name
    return None


def check_file(path: Path | None) -> None:
    """Finds out before a run, not after it, that its result cannot be written. Raises ValueError."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ValueError(f"{path}: " + ("is a folder" if path.is_dir() else "its folder does not exist"))


def _check_files(settings: BenchSettings) -> None:
    for path in (settings.out, settings.plot):
        check_file(path)
    if settings.plot is not None and settings.plot.suffix not in PLOT_SUFFIXES:
        raise ValueError(f"{settings.plot}: end its name in {' or '.join(PLOT_SUFFIXES)}")


def _judge(result: RunResult) -> int:
    """Returns 0 for a load that was served, if not always: how much may fail is for the user to say."""
    from redbatch.bench.answers import WRONG_ANSWER

    summary = result.summary
    if summary is None or not summary.requests:
        return 0
    if wrong := summary.errors.get(WRONG_ANSWER, 0):
        return _failed(f"{wrong:,} of {summary.requests:,} answers did not hold the vectors asked for", EXIT_FAILED)
    if not summary.ok:
        return _failed(f"none of {summary.requests:,} requests got a good answer", EXIT_FAILED)
    return 0


def _write_files(result: RunResult) -> int:
    settings = result.job.settings
    try:
        if settings.out is not None:
            from redbatch.bench.report import as_json

            settings.out.write_text(as_json(result), encoding="utf-8")
        if settings.plot is not None and result.summary is not None:
            from redbatch.bench.plot import draw

            draw(result, settings.plot)
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}", EXIT_FAILED)
    return 0


def _failed(message: str, exit_code: int) -> int:
    print_error(message)
    return exit_code
