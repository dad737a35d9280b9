"""The command `redbatch rerank`: its options and help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redbatch.embed import cli
from redbatch.exit_codes import report_misuse
from redbatch.options import UpPort

OPTIONS_PANEL = "How pairs become scores (default: as the model does)"

Out = Annotated[
    Path,
    typer.Option("--out", "-o", help="File for scores: .jsonl, .parquet or .npy.", rich_help_panel=cli.FILES_PANEL),
]
Query = Annotated[str | None, typer.Option(help="The query of all texts.", rich_help_panel=cli.FILES_PANEL)]
QueryColumn = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Field of the JSON object, or column, that contains the query. Default: query.",
        rich_help_panel=cli.FILES_PANEL,
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="Columns of FILE that a .jsonl or .parquet output keeps. Default: all.",
        rich_help_panel=cli.FILES_PANEL,
    ),
]
Instruction = Annotated[
    str | None,
    typer.Option(
        metavar="TASK",
        help="What relevance means, in words, for a model whose template has a place for it.",
        rich_help_panel=OPTIONS_PANEL,
    ),
]
Truncate = Annotated[
    bool | None,
    typer.Option(
        "--truncate/--no-truncate",
        help="Truncate a pair that is too long, or report an error for it.",
        rich_help_panel=OPTIONS_PANEL,
    ),
]
TruncationDirection = Annotated[
    cli.Side | None,
    typer.Option(metavar="SIDE", help="Side from which to truncate: left or right.", rich_help_panel=OPTIONS_PANEL),
]
RawScores = Annotated[
    bool,
    typer.Option(
        "--raw-scores", help="Write the logits of the model, not scores from 0 to 1.", rich_help_panel=OPTIONS_PANEL
    ),
]

DEFAULT_QUERY_COLUMN = "query"


def rerank(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    source: cli.Source,
    out: Out,
    query: Query = None,
    query_column: QueryColumn = None,
    url: cli.Url = None,
    up: UpPort = None,
    api_key: cli.ApiKey = "",
    model: cli.Model = None,
    column: cli.Column = "text",
    input_format: cli.InputFormat = None,
    keep: Keep = None,
    force: cli.Force = False,
    instruction: Instruction = None,
    truncate: Truncate = None,
    truncation_direction: TruncationDirection = None,
    raw_scores: RawScores = False,
    slice_rows: cli.SliceRows = 8_192,
    in_flight: cli.InFlight = 3,
) -> None:
    """Score a file of texts for queries, with a reranker.

    Each row gets a score, and its rank among the rows of its query, beside its
    other columns. Rows keep their order. The rest is as with `redbatch embed`:
    jobs, that the same command resumes; OUT.errors.jsonl, and exit code 1, for
    rows that have no score.

    redbatch rerank passages.jsonl --query "What is a pet?" -o scores.jsonl

    redbatch rerank pairs.csv --query-column question --column answer -o scores.parquet
    """
    from redbatch.embed.command import run
    from redbatch.embed.plan import EmbedOptions, FileOptions, job_fields, split_names
    from redbatch.rerank.work import score_work

    query_column = _check_query(query, query_column)
    files = FileOptions(source, out, input_format, column, split_names(keep), force, query, query_column)
    fields = job_fields(instruction=instruction, truncate=truncate, truncation_direction=truncation_direction)
    work = score_work(fields, raw=raw_scores)
    raise typer.Exit(run(EmbedOptions(files, cli.url_of_gateway(url, up), api_key, model, slice_rows, in_flight, work)))


def _check_query(query: str | None, column: str | None) -> str | None:
    """Returns the column of the query; None if it has none. Raises typer.Exit: it is empty, or both are given."""
    if query is None:
        return column or DEFAULT_QUERY_COLUMN
    if column is not None:
        raise typer.Exit(report_misuse("--query is that of all texts: leave out --query-column"))
    if not query.strip():
        raise typer.Exit(report_misuse("--query: it is empty"))
    return None
