"""The command `redbatch embed`: what it takes and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def embed(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    source: Annotated[Path, typer.Argument(metavar="FILE", help="Texts: .txt, .jsonl, .csv or .parquet.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Vectors: .npy, .jsonl or .parquet.")],
    url: Annotated[str, typer.Option(help="A gateway.")] = "http://127.0.0.1:8080",
    key: Annotated[str, typer.Option(envvar="REDBATCH_API_KEY", help="Where the gateway asks for one.")] = "",
    column: Annotated[str, typer.Option(help="Field of an object, or column, that has the text.")] = "text",
    model: Annotated[str | None, typer.Option(help="One that the gateway lists under /v1/models.")] = None,
    slice_rows: Annotated[int, typer.Option("--slice", min=1, max=1_000_000, help="Texts in each job.")] = 8_192,
    in_flight: Annotated[int, typer.Option(min=1, max=64, help="Jobs at a time.")] = 3,
) -> None:
    """Embed a file of texts: each row's vector, in order.

    The file goes to a gateway in jobs, which take the room that interactive
    requests leave. What is done is kept beside the output: after a kill, or
    an outage, the same command goes on from there. A row that cannot be
    embedded has an empty row in the output, and OUT.errors.jsonl names it;
    the exit code is 1 then.

    redbatch embed texts.jsonl -o vectors.npy

    redbatch embed table.csv --column body -o vectors.parquet --url https://embed.example.org
    """
    from redbatch.embed.command import EmbedOptions, run

    headers = {"authorization": f"Bearer {key}"} if key else {}
    raise typer.Exit(run(EmbedOptions(source, out, url, headers, column, model, slice_rows, in_flight)))
