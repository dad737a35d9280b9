"""The command `redbatch embed`: its options and help text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from redbatch.exit_codes import report_failure, report_misuse
from redbatch.options import UpPort

OPTIONS_PANEL = "How texts become vectors (default: as the model does)"
FILES_PANEL = "Files"


class Format(StrEnum):
    """The format of an input."""

    TXT = "txt"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


class Side(StrEnum):
    """The side from which a text is truncated."""

    LEFT = "left"
    RIGHT = "right"


Source = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="File with texts: .txt, .jsonl, .csv or .parquet. `-` is standard input.", allow_dash=True
    ),
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="File for vectors: .npy, .jsonl or .parquet.", rich_help_panel=FILES_PANEL)
]
Url = Annotated[
    str | None,
    typer.Option(help="URL of a gateway. Default: your running `redbatch up`; http://127.0.0.1:8080 if there is none."),
]
ApiKey = Annotated[
    str,
    typer.Option(
        "--key", envvar="REDBATCH_API_KEY", help="API key of scope jobs or embed, if the gateway requires one."
    ),
]
Column = Annotated[
    str,
    typer.Option(help="Field of the JSON object, or column, that contains the text.", rich_help_panel=FILES_PANEL),
]
InputFormat = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="Format of FILE. Default: by its name; for standard input, jsonl if the first line is JSON, else txt.",
        rich_help_panel=FILES_PANEL,
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="Columns of FILE that a .jsonl or .parquet output keeps. Default: all but that of the text.",
        rich_help_panel=FILES_PANEL,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Replace an existing output, and what a different run stored beside it.",
        rich_help_panel=FILES_PANEL,
    ),
]
Model = Annotated[str | None, typer.Option(help="A model that the gateway lists under /v1/models.")]
PromptName = Annotated[
    str | None,
    typer.Option(help='One of the model\'s prompts, as query. "": no prompt.', rich_help_panel=OPTIONS_PANEL),
]
InputType = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="What the texts are for: query or document. It becomes one of the model's prompts.",
        rich_help_panel=OPTIONS_PANEL,
    ),
]
Instruction = Annotated[
    str | None,
    typer.Option(
        metavar="TASK",
        help="The task, in words, of a model whose prompts have one.",
        rich_help_panel=OPTIONS_PANEL,
    ),
]
Truncate = Annotated[
    bool | None,
    typer.Option(
        "--truncate/--no-truncate",
        help="Truncate a text that is too long, or report an error for it.",
        rich_help_panel=OPTIONS_PANEL,
    ),
]
TruncationDirection = Annotated[
    Side | None,
    typer.Option(
        metavar="SIDE",  # and N below: if the panel is wider, a terminal of 80 columns cuts this flag
        help="Side from which to truncate: left or right.",
        rich_help_panel=OPTIONS_PANEL,
    ),
]
Normalize = Annotated[
    bool | None,
    typer.Option("--normalize/--no-normalize", help="Normalize vectors to length 1.", rich_help_panel=OPTIONS_PANEL),
]
Dimensions = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Truncate vectors to this many dimensions, before they are normalized.",
        rich_help_panel=OPTIONS_PANEL,
    ),
]
SliceRows = Annotated[int, typer.Option("--slice", min=1, max=1_000_000, help="Maximum number of texts per job.")]
InFlight = Annotated[int, typer.Option(min=1, max=64, help="Maximum number of jobs, or requests, in flight.")]


def embed(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    source: Source,
    out: Out,
    url: Url = None,
    up: UpPort = None,
    api_key: ApiKey = "",
    model: Model = None,
    column: Column = "text",
    input_format: InputFormat = None,
    keep: Keep = None,
    force: Force = False,
    prompt_name: PromptName = None,
    input_type: InputType = None,
    instruction: Instruction = None,
    truncate: Truncate = None,
    truncation_direction: TruncationDirection = None,
    normalize: Normalize = None,
    dimensions: Dimensions = None,
    slice_rows: SliceRows = 8_192,
    in_flight: InFlight = 3,
) -> None:
    """Embed a file of texts: one vector per row, in order, beside its other columns.

    The texts go to a gateway as jobs, in the capacity that requests leave. After
    a kill or an outage, the same command resumes. A row that cannot be embedded
    is empty in the output, OUT.errors.jsonl has its error, and it exits with 1.

    redbatch embed texts.jsonl -o vectors.npy

    redbatch embed table.csv --column body --keep id,title -o vectors.parquet

    zcat texts.txt.gz | redbatch embed - -o vectors.npy --prompt-name document
    """
    from redbatch.embed import command, plan, vectors

    files = plan.FileOptions(source, out, input_format, column, plan.split_names(keep), force)
    fields = plan.job_fields(prompt_name=prompt_name, input_type=input_type, instruction=instruction, truncate=truncate)
    fields |= plan.job_fields(truncation_direction=truncation_direction, normalize=normalize, dimensions=dimensions)
    gateway, work = url_of_gateway(url, up), vectors.vector_work(fields)
    raise typer.Exit(command.run(plan.EmbedOptions(files, gateway, api_key, model, slice_rows, in_flight, work)))


def url_of_gateway(url: str | None, up: int | None) -> str:
    """Returns the URL of the gateway. Raises typer.Exit: the options exclude each other, or no `up` has this port."""
    from redbatch.gateway_url import find_gateway_url
    from redbatch.up.run_file import NoUpError

    if url is not None and up is not None:
        raise typer.Exit(report_misuse("--up finds the URL of a running `redbatch up`: leave out --url"))
    try:
        return find_gateway_url(url, up)
    except NoUpError as error:
        raise typer.Exit(report_failure(str(error))) from None
