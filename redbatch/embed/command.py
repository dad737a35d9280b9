"""Implementation of `redbatch embed` and `redbatch rerank`: reads rows, has a gateway compute, writes the results."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx

from redbatch.embed.checkpoint import BusyError, Checkpoint, OtherTaskError
from redbatch.embed.columns import ColumnsError
from redbatch.embed.gateway_client import GatewayClient, RequestRefusedError
from redbatch.embed.jobs import JobEmbedder
from redbatch.embed.plan import EmbedOptions, OptionsError, Plan, check_options, make_plan
from redbatch.embed.progress import EmbedProgress
from redbatch.embed.readers import UnreadableFileError, read_rows
from redbatch.embed.requests import RequestEmbedder
from redbatch.embed.scope import ScopedEmbedder
from redbatch.embed.session import Session, slices_of
from redbatch.embed.standard_input import STANDARD_INPUT, copy_of_input
from redbatch.embed.writers import Layout, UnwritableFileError
from redbatch.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TERMINATED, report_failure, report_misuse
from redbatch.terminal import print_line
from redbatch.times import format_duration
from shared.process.settings import print_error
from shared.redis_url import mask_password


class RowFault(NamedTuple):
    """Why a row has no result: its first line in the file, or the number of its record, and the error."""

    line: int
    error: str


def run(options: EmbedOptions) -> int:
    """Embeds a file, or scores its rows, and returns the exit code.

    0: each row has a result; 1: some or all have none, or the gateway refused; 2: the options or a file are unusable;
    130: after Ctrl-C; 143: after SIGTERM.
    """
    started = time.monotonic()
    try:
        check_options(options)
        with copy_of_input(options.files.source, options.files.out) as path:
            plan = make_plan(options, path)
            if not plan.num_rows:
                return report_failure(f"{plan.file.name} is empty: there is nothing to {options.work.command}")
            checkpoint = Checkpoint(options.files.out, plan.task)
            if (code := _embed_all(options, plan, checkpoint)) != 0:
                return code
            return _finish(options, plan, checkpoint, started)
    except (OptionsError, UnreadableFileError, UnwritableFileError, ColumnsError) as error:
        code = report_misuse(str(error))
        for line in getattr(error, "__notes__", ()):
            _print(line)
        return code
    except OSError as error:
        return report_misuse(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _embed_all(options: EmbedOptions, plan: Plan, checkpoint: Checkpoint) -> int:
    """Stores the results of all slices in the checkpoint; returns the exit code, 0 if that was possible."""
    with EmbedProgress(plan.num_rows) as progress:
        for line in _open(options, checkpoint):
            progress.print_line(line)
        if options.files.source == STANDARD_INPUT and options.files.format is None:
            progress.print_line(f"Standard input is read as .{plan.file.format}; --format chooses another format.")
        try:
            asyncio.run(_embed(options, plan, checkpoint, progress))
        except KeyboardInterrupt:
            _report_stop(options, checkpoint, "interrupted", interrupted=True)
            return EXIT_INTERRUPTED
        except asyncio.CancelledError:  # by SIGTERM: see _embed
            _report_stop(options, checkpoint, "terminated", interrupted=True)
            return EXIT_TERMINATED
        except (RequestRefusedError, ExceptionGroup) as error:
            _report_stop(options, checkpoint, _refusal_in(error), interrupted=False)
            return EXIT_FAILED
    return 0


def _open(options: EmbedOptions, checkpoint: Checkpoint) -> Iterator[str]:
    """Opens the checkpoint; yields what it says about an earlier run. Raises OptionsError: it is of another task."""
    try:
        resumed = checkpoint.open()
    except BusyError:
        other = f"another `redbatch {options.work.command}` writes {options.files.out}"
        raise OptionsError(f"{other}: wait for it, or choose another output") from None
    except OtherTaskError:
        running = list(_describe_running(options, checkpoint))
        if not options.files.force:
            refusal = (
                f"{checkpoint.folder} is of a run with another input or other options: repeat that command to resume "
                "it, choose another output, or discard it with --force"
            )
            error = OptionsError(refusal)
            for line in running:
                error.add_note(line)
            raise error from None
        yield f"An earlier run with another input or other options is discarded: {checkpoint.folder}"
        yield from running
        checkpoint.remove()
        checkpoint.open()
        return
    if resumed:
        yield "Resuming an earlier run: its finished slices and its jobs in the cluster are used."


def _describe_running(options: EmbedOptions, checkpoint: Checkpoint) -> Iterator[str]:
    """Yields lines about the jobs of unfinished slices, and the command that cancels them; nothing without any."""
    if urls := checkpoint.jobs():
        authorization = ["-H", '"Authorization: Bearer $REDBATCH_API_KEY"'] if options.api_key else []
        variable = ", with your API key in REDBATCH_API_KEY" if options.api_key else ""
        yield f"{len(urls)} of its jobs may continue in the cluster, unless you cancel them{variable}:"
        yield " ".join(["curl -s -X DELETE", *authorization, *(shlex.quote(mask_password(url)) for url in urls)])


def _report_stop(options: EmbedOptions, checkpoint: Checkpoint, reason: str, *, interrupted: bool) -> None:
    """Prints why the run ended, how to resume it, and what continues in the cluster."""
    print_error(reason)
    if checkpoint.is_used():
        _print("To resume, run the same command again: it uses the finished slices and the jobs in the cluster.")
    else:
        checkpoint.remove()
    running = list(_describe_running(options, checkpoint))
    for line in running or ["Nothing of it continues in the cluster."] * interrupted:
        _print(line)


def _print(line: str) -> None:
    print_line(line, to_stderr=True)


def _refusal_in(error: RequestRefusedError | ExceptionGroup[Exception]) -> str:
    """Returns the text of the first refusal in a group of errors. Raises the group: it has another error."""
    if isinstance(error, RequestRefusedError):
        return str(error)
    refused, others = error.split(RequestRefusedError)
    if others is not None or refused is None:
        raise error
    return _refusal_in(refused.exceptions[0])


async def _embed(options: EmbedOptions, plan: Plan, checkpoint: Checkpoint, progress: EmbedProgress) -> None:
    """Embeds all slices. SIGTERM cancels it."""
    work = options.work
    if (task := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    headers |= {"x-model": options.model} if options.model else {}
    limits = httpx.Limits(max_connections=2 * options.in_flight)
    async with httpx.AsyncClient(base_url=options.url, headers=headers, limits=limits) as http:
        client = GatewayClient(http, progress.print_line)
        embedder = ScopedEmbedder(
            JobEmbedder(client, checkpoint, work.fields, work.form),
            RequestEmbedder(client, work.route, options.in_flight),
            lambda: progress.print_line(
                f"This API key has no scope jobs: the texts are sent in requests to {work.route.path}."
            ),
        )
        session = Session(embedder, checkpoint, options.in_flight, progress.update, progress.skip)
        await session.run(slices_of(read_rows(plan.file), options.slice_rows))


def _finish(options: EmbedOptions, plan: Plan, checkpoint: Checkpoint, started: float) -> int:
    """Writes the output, and the errors of rows without a result; returns the exit code."""
    work = options.work
    dim = max(vectors.shape[1] for vectors, _ in checkpoint.read_all(plan.num_slices))
    if dim:
        partial = options.files.out.with_name(f"{options.files.out.name}.tmp{options.files.out.suffix}")
        columns = work.columns(read_rows(plan.file), checkpoint.read_all(plan.num_slices))
        layout = Layout(plan.num_rows, dim, columns)
        plan.writer(partial, checkpoint.read_all(plan.num_slices), plan.kept, layout)
        partial.replace(options.files.out)
    faults = _write_errors(options, plan, checkpoint)
    warnings = list(_warnings(plan, checkpoint, work.result))
    checkpoint.remove()
    if not dim:
        return report_failure(f"of {plan.num_rows:,} texts, {_describe_faults(options, faults)}")
    duration = format_duration(time.monotonic() - started)
    num_results = plan.num_rows - len(faults)
    _print(f"{options.files.out}: {num_results:,} of {plan.num_rows:,} texts have {work.result}s, after {duration}.")
    for warning in warnings:
        _print(warning)
    if faults:
        _print(_describe_faults(options, faults))
    return EXIT_FAILED if faults else 0


def _warnings(plan: Plan, checkpoint: Checkpoint, result: str) -> Iterator[str]:
    """Yields the warnings about results: several revisions of the model, truncated texts."""
    revisions = sorted(checkpoint.revisions(plan.num_slices))
    if len(revisions) > 1:
        names = ", ".join(revisions)
        yield f"The model changed during the run ({names}): {result}s of different revisions are not comparable."
    if num_truncated := checkpoint.num_truncated(plan.num_slices):
        yield f"Truncated to the model's maximum length: {num_truncated:,} texts. --no-truncate makes that an error."


def _describe_faults(options: EmbedOptions, faults: Sequence[RowFault]) -> str:
    """Returns which row has no result and why or, of several, how many and the first; and where the errors are."""
    first, path, result = faults[0], _errors_path(options.files.out), options.work.result
    reason = f"line {first.line:,}: {first.error.removesuffix('.')}"
    if len(faults) == 1:
        return f"1 has no {result}: {reason}. The error is in {path}."
    return f"{len(faults):,} have no {result}, the first is {reason}. All errors are in {path}."


def _write_errors(options: EmbedOptions, plan: Plan, checkpoint: Checkpoint) -> list[RowFault]:
    """Writes the errors of rows without a result beside the output, and returns them."""
    path = _errors_path(options.files.out)
    path.unlink(missing_ok=True)
    lines = (row.line for row in read_rows(plan.file))
    errors = []
    for vectors, faults in checkpoint.read_all(plan.num_slices):
        for index, line in zip(range(len(vectors)), lines, strict=False):
            if index in faults:
                errors.append(RowFault(line, faults[index]))
    if errors:
        path.write_text("".join(json.dumps(each._asdict()) + "\n" for each in errors), encoding="utf-8")
    return errors


def _errors_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.errors.jsonl")
