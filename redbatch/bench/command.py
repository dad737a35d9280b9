"""`redbatch bench`: checks the arguments, runs the load, and reports the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from redbatch.bench.body_template import InvalidBodyError, read_template
from redbatch.bench.settings import BenchSettings
from redbatch.bench.target import DEFAULT_PATH, Target, encode_bodies, encode_body, parse_header, parse_target
from redbatch.bench.texts import InvalidTextsError, request_texts
from redbatch.exit_codes import report_failure, report_misuse
from redbatch.preconditions import check_file, missing_module
from redbatch.terminal import print_line
from redbatch.up.run_file import NoUpError
from shared.process.settings import option_of, read_settings

if TYPE_CHECKING:
    from redbatch.bench.run import RefusedError, RunResult

PLOT_SUFFIXES = (".png", ".svg", ".pdf")


RERANK_PATH = "/rerank"
RERANK_BODY = '{"query": "{text}", "documents": "{texts}"}'


class Mode(NamedTuple):
    """Whether each answer is checked, whether a request is a query with documents, and whether to print JSON."""

    check: bool
    rerank: bool
    in_json: bool


def bench(overrides: Mapping[str, str], find_url: Callable[[], str], headers: Sequence[str], mode: Mode) -> int:
    """Runs the load and prints its result.

    `find_url` returns the URL of the server, or raises NoUpError. Invalid options are reported before it is called.

    Returns the exit code: 0; 1 if the server cannot be reached or refuses each request, no request got a good
    answer, a checked answer was wrong, or a file cannot be written; 2 for invalid arguments.
    """
    settings = read_settings(BenchSettings, overrides)
    missing = missing_module("httptools", *(["matplotlib"] if settings.plot else []))
    if missing is not None:
        return report_misuse(f"{missing} is not installed; install it with: pip install -e '.[bench]' in the checkout")
    from redbatch.bench.run import CannotConnectError, RefusedError, RunSpec, run

    try:
        body = _body(settings, check=mode.check, rerank=mode.rerank)
        bodies, parsed_headers = _bodies(settings, body), _headers(settings, headers)
        _check_files(settings)
        target = parse_target(find_url(), settings.path, RERANK_PATH if mode.rerank else DEFAULT_PATH)
        requests = encode_bodies(target, parsed_headers, bodies)
    except NoUpError as error:
        return report_failure(str(error))
    except ValueError as error:
        return report_misuse(str(error))
    from redbatch.bench.progress import LoadProgress

    try:
        with LoadProgress(settings) as progress:
            result = run(RunSpec(settings, target, requests, mode.check, mode.rerank), progress)
    except CannotConnectError as error:
        return report_failure(f"cannot connect to {target.url}: {error}")
    except RefusedError as error:
        return report_failure(f"{target.url} refuses the request: {error}{_advice(error, body, target)}")
    _print(result, in_json=mode.in_json)
    return max(_write_files(result), _judge(result))


def _print(result: RunResult, *, in_json: bool) -> None:
    from redbatch.bench.report import as_json, print_result

    if in_json:
        print_line(as_json(result).rstrip())
    else:
        print_result(result)


def _body(settings: BenchSettings, *, check: bool, rerank: bool) -> str | None:
    """Returns the template of the bodies; None for those of /embed. Raises ValueError: an option excludes another."""
    if rerank and settings.body is not None:
        raise ValueError("--rerank has a body: leave out --body")
    body = RERANK_BODY if rerank else settings.body
    if check and body is not None:
        raise ValueError("--check: it looks for the vectors of texts; leave it out with --body and --rerank")
    return body


def _bodies(settings: BenchSettings, body: str | None) -> Iterable[bytes]:
    """Returns the bodies of requests. Raises ValueError if the texts or the template cannot be used."""
    inputs = settings.inputs_per_request
    try:
        if body is None:
            return map(encode_body, request_texts(settings.texts, settings.mix, settings.seed, inputs))
        template = read_template(body)
        template.check(inputs, texts_given=settings.texts is not None)
        num_texts = inputs + template.num_texts_more
        return template.fill(request_texts(settings.texts, settings.mix, settings.seed, num_texts))
    except (InvalidTextsError, InvalidBodyError) as error:
        raise ValueError(f"{option_of('texts' if isinstance(error, InvalidTextsError) else 'body')}: {error}") from None


def _headers(settings: BenchSettings, texts: Iterable[str]) -> list[tuple[str, str]]:
    try:
        headers = [parse_header(each) for each in texts]
    except ValueError as error:
        raise ValueError(f"--header: {error}") from None
    return headers if settings.timeout_ms is None else [*headers, ("X-Timeout-Ms", str(settings.timeout_ms))]


def _check_files(settings: BenchSettings) -> None:
    check_file(option_of("out"), settings.out)
    check_file(option_of("plot"), settings.plot)
    if settings.plot is not None and settings.plot.suffix not in PLOT_SUFFIXES:
        raise ValueError(f"{option_of('plot')}: {settings.plot}: the name must end in {' or '.join(PLOT_SUFFIXES)}")


def _judge(result: RunResult) -> int:
    """Returns 0 if some request got a good answer and none a wrong one: how many may fail is for the user to decide."""
    from redbatch.bench.answers import WRONG_ANSWER

    summary = result.summary
    if summary is None or not summary.requests:
        return 0
    if wrong := summary.errors.get(WRONG_ANSWER, 0):
        return report_failure(f"{wrong:,} of {summary.requests:,} answers did not contain one vector per text")
    if not summary.ok:
        return report_failure(f"none of {summary.requests:,} requests got a good answer")
    return 0


def _advice(error: RefusedError, body: str | None, target: Target) -> str:
    """Returns what to do about a refusal, if that is known."""
    if error.status == HTTPStatus.UNAUTHORIZED:
        return '; send an API key with --header "Authorization: Bearer $REDBATCH_API_KEY"'
    if body is not None or error.status not in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}:
        return ""
    if "/predict" in str(error):
        return """; for a function, give its route: --path /predict --body '{"input": "{number}"}'"""
    if target.path != DEFAULT_PATH:
        example = """--body '{"model": "NAME", "input": "{texts}"}' for OpenAI's"""
        return f"; the bodies were those of {DEFAULT_PATH}: give others, such as {example}"
    return ""


def _write_files(result: RunResult) -> int:
    settings = result.spec.settings
    try:
        if settings.out is not None:
            from redbatch.bench.report import as_json

            settings.out.write_text(as_json(result), encoding="utf-8")
        if settings.plot is not None and result.summary is not None:
            from redbatch.bench.result_plot import draw

            draw(result, settings.plot)
    except OSError as error:
        return report_failure(f"{error.filename}: {error.strerror}")
    return 0
