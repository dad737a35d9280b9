"""Implementation of `redbatch embed`: reads texts, embeds them through jobs, and writes the vectors."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx

from redbatch.embed.checkpoint import Checkpoint, TaskIdentity
from redbatch.embed.client import JobClient, RequestRefusedError
from redbatch.embed.progress import EmbedProgress
from redbatch.embed.readers import UnreadableFileError, read_rows
from redbatch.embed.session import Session, slices_of
from redbatch.embed.writers import UnwritableFileError, Writer, writer_for
from redbatch.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, report_misuse
from redbatch.times import format_duration
from shared.process.settings import print_error


class EmbedOptions(NamedTuple):
    """Input file, output file, gateway, and the options of the run."""

    source: Path
    out: Path
    url: str
    headers: Mapping[str, str]
    column: str
    model: str | None
    slice_rows: int
    in_flight: int


def run(options: EmbedOptions) -> int:
    """Embeds a file and returns the exit code.

    0: each row has a vector; 1: some have none, or the gateway refused; 2: a file is unusable; 130: after Ctrl-C.
    """
    started = time.monotonic()
    try:
        writer = writer_for(options.out)
        task = TaskIdentity.of(options.source, options.url, options.column, options.model, options.slice_rows)
        num_rows = sum(1 for _ in read_rows(options.source, options.column))
    except (UnreadableFileError, UnwritableFileError, OSError) as error:
        return report_misuse(str(error))
    checkpoint = Checkpoint(options.out, task)
    num_slices = -(-num_rows // options.slice_rows)
    resumed = checkpoint.open()
    with EmbedProgress(num_rows) as progress:
        if resumed:
            progress.print_line("Resuming an earlier run.")
        try:
            asyncio.run(_embed(options, checkpoint, progress))
        except KeyboardInterrupt:
            return _stop("interrupted", EXIT_INTERRUPTED)
        except ExceptionGroup as group:
            refused, others = group.split(RequestRefusedError)
            if others is not None or refused is None:
                raise
            return _stop(str(refused.exceptions[0]), EXIT_FAILED)
    num_faults = _write_all(options, checkpoint, writer, num_slices, num_rows)
    revisions = checkpoint.revisions(num_slices)
    checkpoint.remove()
    duration = format_duration(time.monotonic() - started)
    progress.print_line(
        f"{options.out}: {num_rows - num_faults:,} of {num_rows:,} texts have vectors, after {duration}."
    )
    for warning in _warnings(options.out, sorted(revisions), num_faults):
        progress.print_line(warning)
    return EXIT_FAILED if num_faults else 0


def _warnings(out: Path, revisions: Sequence[str], num_faults: int) -> Iterator[str]:
    """Yields the warnings after a finished run: several revisions of the model, rows without a vector."""
    if len(revisions) > 1:
        names = ", ".join(revisions)
        yield f"The model changed during the run ({names}): vectors of different revisions are not comparable."
    if num_faults:
        yield f"{num_faults:,} have none: see {_errors_path(out)} for the errors."


def _stop(reason: str, code: int) -> int:
    print_error(reason)
    print_error("Finished slices are stored: run the same command again to resume.")
    return code


async def _embed(options: EmbedOptions, checkpoint: Checkpoint, progress: EmbedProgress) -> None:
    headers = dict(options.headers) | ({"x-model": options.model} if options.model else {})
    limits = httpx.Limits(max_connections=2 * options.in_flight)
    async with httpx.AsyncClient(base_url=options.url, headers=headers, limits=limits) as client:
        session = Session(JobClient(client), checkpoint, options.in_flight, progress.update)
        await session.run(slices_of(read_rows(options.source, options.column), options.slice_rows))


def _write_all(options: EmbedOptions, checkpoint: Checkpoint, writer: Writer, num_slices: int, num_rows: int) -> int:
    """Writes the output and the errors of rows without a vector; returns the number of these rows."""
    dim = max((vectors.shape[1] for vectors, _ in checkpoint.read_all(num_slices)), default=0)
    partial = options.out.with_name(f"{options.out.name}.tmp{options.out.suffix}")
    writer(partial, checkpoint.read_all(num_slices), num_rows, dim)
    errors_path = _errors_path(options.out)
    errors_path.unlink(missing_ok=True)
    lines = (row.line for row in read_rows(options.source, options.column))
    errors = []
    for vectors, faults in checkpoint.read_all(num_slices):
        for index in range(len(vectors)):
            line = next(lines)
            if index in faults:
                errors.append({"line": line, "error": faults[index]})
    if errors:
        errors_path.write_text("".join(json.dumps(each) + "\n" for each in errors), encoding="utf-8")
    partial.replace(options.out)
    return len(errors)


def _errors_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.errors.jsonl")
