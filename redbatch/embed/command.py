"""What `redbatch embed` does: it reads, asks, keeps what is done, and writes. Returns the exit code."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import httpx

from redbatch.embed.client import JobClient, Refused
from redbatch.embed.parts import Parts, Task
from redbatch.embed.progress import Watch
from redbatch.embed.reading import UnreadableFile, read_rows
from redbatch.embed.session import Session, slices_of
from redbatch.embed.writing import UnwritableFile, Write, writer_for
from shared.process.settings import EXIT_CONFIGURATION, complain
from redbatch.progress import as_time

EXIT_FAULTS = 1
EXIT_INTERRUPTED = 130


class Wanted(NamedTuple):
    """What is to be embedded, where the vectors go, and whom to ask."""

    source: Path
    out: Path
    url: str
    headers: Mapping[str, str]
    column: str
    model: str | None
    slice_rows: int
    in_flight: int


def run(wanted: Wanted) -> int:
    """Embeds a file: 0 when each row has its vector, 1 when some have none or it was cut off."""
    began = time.monotonic()
    try:
        write = writer_for(wanted.out)
        task = Task.of(wanted.source, wanted.url, wanted.column, wanted.model, wanted.slice_rows)
        rows = sum(1 for _ in read_rows(wanted.source, wanted.column))
    except (UnreadableFile, UnwritableFile, OSError) as error:
        complain(str(error))
        return EXIT_CONFIGURATION
    parts = Parts(wanted.out, task)
    slices = -(-rows // wanted.slice_rows)
    again = parts.open()
    with Watch(rows) as watch:
        if again:
            watch.tell("Going on with what an earlier run left.")
        try:
            asyncio.run(_ask(wanted, parts, watch))
        except KeyboardInterrupt:
            return _stopped("interrupted", EXIT_INTERRUPTED)
        except ExceptionGroup as group:
            refused, rest = group.split(Refused)
            if rest is not None or refused is None:
                raise
            return _stopped(str(refused.exceptions[0]), EXIT_FAULTS)
    faults = _write_all(wanted, parts, write, slices, rows)
    revisions = parts.revisions(slices)
    parts.remove()
    took = as_time(time.monotonic() - began)
    watch.tell(f"{wanted.out}: {rows - faults:,} of {rows:,} texts have vectors, after {took}.")
    if len(revisions) > 1:
        watch.tell(f"The model was changed meanwhile ({', '.join(sorted(revisions))}): vectors of both do not compare.")
    if faults:
        watch.tell(f"{faults:,} have none: {_errors_path(wanted.out)} names each.")
    return EXIT_FAULTS if faults else 0


def _stopped(why: str, code: int) -> int:
    complain(why)
    complain("What is done is kept: the same command goes on from there.")
    return code


async def _ask(wanted: Wanted, parts: Parts, watch: Watch) -> None:
    headers = dict(wanted.headers) | ({"x-model": wanted.model} if wanted.model else {})
    limits = httpx.Limits(max_connections=2 * wanted.in_flight)
    async with httpx.AsyncClient(base_url=wanted.url, headers=headers, limits=limits) as client:
        session = Session(JobClient(client), parts, wanted.in_flight, watch.told)
        await session.run(slices_of(read_rows(wanted.source, wanted.column), wanted.slice_rows))


def _write_all(wanted: Wanted, parts: Parts, write: Write, slices: int, rows: int) -> int:
    """Writes the output, and what is wrong with rows that have no vector; returns how many these are."""
    dim = max((vectors.shape[1] for vectors, _ in parts.all(slices)), default=0)
    part = wanted.out.with_name(f"{wanted.out.name}.tmp{wanted.out.suffix}")
    write(part, parts.all(slices), rows, dim)
    errors = _errors_path(wanted.out)
    errors.unlink(missing_ok=True)
    lines = (row.line for row in read_rows(wanted.source, wanted.column))
    found = []
    for vectors, wrong in parts.all(slices):
        for index in range(len(vectors)):
            line = next(lines)
            if index in wrong:
                found.append({"line": line, "error": wrong[index]})
    if found:
        errors.write_text("".join(json.dumps(each) + "\n" for each in found), encoding="utf-8")
    part.replace(wanted.out)
    return len(found)


def _errors_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.errors.jsonl")
