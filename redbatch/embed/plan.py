"""What a run of a command on a file will do: its options, checked against each other and the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from redbatch.embed.checkpoint import TaskIdentity
from redbatch.embed.columns import ColumnChoice, KeptColumns, choose_columns
from redbatch.embed.output_columns import OutputColumns, Slice
from redbatch.embed.readers import PARQUET as PARQUET_FORMAT
from redbatch.embed.readers import TXT, InputFile, InputRow, format_of, parquet_names, read_rows
from redbatch.embed.requests import RequestRoute
from redbatch.embed.session import slices_of
from redbatch.embed.standard_input import STANDARD_INPUT, guess_format
from redbatch.embed.writers import NPY, PARQUET, Writer, writer_for
from redbatch.preconditions import check_file


class OptionsError(Exception):
    """The options do not fit each other, or the files; the message says what to do."""


class FileOptions(NamedTuple):
    """Input and output.

    `format` None: by the name of the file; `keep` None: as the command does. `query` and `query_column` are as in
    InputFile.
    """

    source: Path
    out: Path
    format: str | None
    column: str
    keep: Sequence[str] | None
    force: bool
    query: str | None = None
    query_column: str | None = None


class Work(NamedTuple):
    """What a command computes for each row of a file, and how it asks a gateway for it.

    Attributes:
        command: name of the command.
        result: what a row gets, as "vector".
        fields: options of each job, such as `prompt_name`.
        form: parameters of each download of a job's results.
        route: of requests, for API keys whose scope allows no jobs.
        choice: which columns the output has.
        columns: returns the columns of the output, for the rows of the file and their results.
    """

    command: str
    result: str
    fields: Mapping[str, object]
    form: Mapping[str, object]
    route: RequestRoute
    choice: ColumnChoice
    columns: Callable[[Iterable[InputRow], Iterable[Slice]], OutputColumns]


class EmbedOptions(NamedTuple):
    """Input, output, gateway, what to compute, and the options of the run."""

    files: FileOptions
    url: str
    api_key: str
    model: str | None
    slice_rows: int
    in_flight: int
    work: Work


def job_fields(**options: object) -> dict[str, object]:
    """Returns the options of a job that the user set, as fields of a body or parameters of a query."""
    return {name: value for name, value in options.items() if value is not None}


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
        raise OptionsError(f"--keep: a .npy file has {options.work.result}s alone: write .jsonl or .parquet")


def make_plan(options: EmbedOptions, path: Path) -> Plan:
    """Returns what a run will do with the input at a path; reads all of it.

    Raises:
        OptionsError: a file of text lines has no query.
        UnreadableFileError: the input cannot be read in its format.
        ColumnsError: the output cannot keep the columns.
        OSError: the input cannot be opened.
    """
    files, work = options.files, options.work
    is_named = files.source != STANDARD_INPUT
    kind = files.format or (format_of(files.source) if is_named else guess_format(path))
    name = str(files.source) if is_named else "standard input"
    if files.query_column is not None and kind == TXT:
        raise OptionsError(f"{name} has lines of text and no column for a query: give one with --query")
    file = InputFile(path, kind, files.column, name, files.query, files.query_column)
    task = TaskIdentity.of(file, options.url, options.model, options.slice_rows, {**work.fields, **work.form})
    num_rows = num_slices = 0
    present: dict[str, None] = {}
    for rows in slices_of(read_rows(file), options.slice_rows):
        num_rows += len(rows)
        num_slices += 1
        for row in rows:
            present |= dict.fromkeys(row.columns)
    names: tuple[str, ...] = ()
    if files.out.suffix.lower() != NPY:
        columns = parquet_names(file) if kind == PARQUET_FORMAT else list(present)
        names = choose_columns(file, columns, files.keep, work.choice)
    kept = KeptColumns(file, names)
    if files.out.suffix.lower() == PARQUET:
        kept.tables()  # refuses columns that Parquet cannot hold before anything is sent
    return Plan(file, task, writer_for(files.out), kept, num_rows, num_slices)
