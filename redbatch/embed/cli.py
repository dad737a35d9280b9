"""The command `redbatch embed`: its options and help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def embed(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    source: Annotated[Path, typer.Argument(metavar="FILE", help="File with texts: .txt, .jsonl, .csv or .parquet.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File for vectors: .npy, .jsonl or .parquet.")],
    url: Annotated[str, typer.Option(help="URL of a gateway.")] = "http://127.0.0.1:8080",
    api_key: Annotated[
        str, typer.Option("--key", envvar="REDBATCH_API_KEY", help="API key, if the gateway requires one.")
    ] = "",
    column: Annotated[str, typer.Option(help="Field of the JSON object, or column, that contains the text.")] = "text",
    model: Annotated[str | None, typer.Option(help="A model that the gateway lists under /v1/models.")] = None,
    slice_rows: Annotated[int, typer.Option("--slice", min=1, max=1_000_000, help="Number of texts per job.")] = 8_192,
    in_flight: Annotated[int, typer.Option(min=1, max=64, help="Maximum number of jobs in flight.")] = 3,
) -> None:
    """Embed a file of texts: one vector per row, in order.

    The file is sent to a gateway as jobs, which use the capacity that
    interactive requests leave. Finished jobs are stored beside the output:
    after a kill or an outage, the same command resumes. For a row that cannot
    be embedded, the output has an empty row, OUT.errors.jsonl has the error,
    and the exit code is 1.

    redbatch embed texts.jsonl -o vectors.npy

    redbatch embed table.csv --column body -o vectors.parquet --url https://embed.example.org
    """
    from redbatch.embed.command import EmbedOptions, run

    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    raise typer.Exit(run(EmbedOptions(source, out, url, headers, column, model, slice_rows, in_flight)))
