"""What a run of `redbatch embed` will do: its options, checked against each other and the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from redbatch.embed.checkpoint import TaskIdentity
from redbatch.embed.columns import KeptColumns, choose_columns
from redbatch.embed.readers import PARQUET as PARQUET_FORMAT
from redbatch.embed.readers import InputFile, format_of, parquet_names, read_rows
from redbatch.embed.session import slices_of
from redbatch.embed.standard_input import STANDARD_INPUT, guess_format
from redbatch.embed.writers import NPY, PARQUET, Writer, writer_for
from redbatch.preconditions import check_file


class OptionsError(Exception):
    """The options do not fit each other, or the files; the message says what to do."""


class FileOptions(NamedTuple):
    """Input and output.

    `format` None: by the name of the file; `keep` None: all columns but that of the text.
    """

    source: Path
    out: Path
    format: str | None
    column: str
    keep: Sequence[str] | None
    force: bool


class EmbedOptions(NamedTuple):
    """Input, output, gateway, and the options of the run; `fields` are those of each job, such as `prompt_name`."""

    files: FileOptions
    url: str
    api_key: str
    model: str | None
    slice_rows: int
    in_flight: int
    fields: Mapping[str, object]


def job_fields(
    prompt_name: str | None,
    truncate: bool | None,
    truncation_direction: str | None,
    normalize: bool | None,
    dimensions: int | None,
) -> dict[str, object]:
    """Returns the options of a job that the user set, as fields of a body or parameters of a query."""
    fields: dict[str, object] = {
        "prompt_name": prompt_name,
        "truncate": truncate,
        "truncation_direction": truncation_direction,
        "normalize": normalize,
        "dimensions": dimensions,
    }
    return {name: value for name, value in fields.items() if value is not None}


def split_names(names: str | None) -> list[str] | None:
    """Returns the names in a list that commas separate."""
    return None if names is None else [name for each in names.split(",") if (name := each.strip())]


class Plan(NamedTuple):
    """The input, the writer of the output, the columns that it keeps, and the numbers of rows and slices."""

    file: InputFile
    task: TaskIdentity
    writer: Writer
    kept: KeptColumns
    num_rows: int
    num_slices: int


def check_options(options: EmbedOptions) -> None:
    """Raises OptionsError: the options do not fit each other, or the output exists, or its folder does not."""
    parts = urlsplit(options.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionsError(f"--url {options.url}: write it as http://127.0.0.1:8080")
    writer_for(options.files.out)
    try:
        check_file("--out", options.files.out)
    except ValueError as error:
        raise OptionsError(str(error)) from None
    if options.files.source.resolve() == options.files.out.resolve():
        raise OptionsError(f"{options.files.out} is the input: choose another output")
    if options.files.out.exists() and not options.files.force:
        raise OptionsError(f"{options.files.out} exists: choose another output, or replace it with --force")
    if options.files.keep is not None and options.files.out.suffix.lower() == NPY:
        raise OptionsError("--keep: a .npy file has vectors alone: write .jsonl or .parquet")


def make_plan(options: EmbedOptions, path: Path) -> Plan:
    """Returns what a run will do with the input at a path; reads all of it.

    Raises:
        UnreadableFileError: the input cannot be read in its format.
        ColumnsError: the output cannot keep the columns.
        OSError: the input cannot be opened.
    """
    is_named = options.files.source != STANDARD_INPUT
    kind = options.files.format or (format_of(options.files.source) if is_named else guess_format(path))
    file = InputFile(path, kind, options.files.column, str(options.files.source) if is_named else "standard input")
    task = TaskIdentity.of(file, options.url, options.model, options.slice_rows, options.fields)
    num_rows = num_slices = 0
    present: dict[str, None] = {}
    for rows in slices_of(read_rows(file), options.slice_rows):
        num_rows += len(rows)
        num_slices += 1
        for row in rows:
            present |= dict.fromkeys(row.columns)
    names: tuple[str, ...] = ()
    if options.files.out.suffix.lower() != NPY:
        names = choose_columns(
            file, parquet_names(file) if kind == PARQUET_FORMAT else list(present), options.files.keep
        )
    kept = KeptColumns(file, names)
    if options.files.out.suffix.lower() == PARQUET:
        kept.tables()  # refuses columns that Parquet cannot hold before anything is sent
    return Plan(file, task, writer_for(options.files.out), kept, num_rows, num_slices)
