"""`redbatch size`: its options and help text."""

from __future__ import annotations

from typing import Annotated

import typer

from redbatch.options import Json
from shared.model_names import DEFAULT_MODEL


def size(  # noqa: PLR0913, PLR0917 - one for each option
    rate: Annotated[float, typer.Option(min=0.001, max=1e9, help="Requests per second at the peak.")],
    inputs_per_request: Annotated[int, typer.Option(min=1, max=100_000, help="Texts per request.")] = 1,
    tokens_per_input: Annotated[float, typer.Option(min=1, max=100_000, help="Mean number of tokens of a text.")] = 15,
    model: Annotated[str, typer.Option(help="Model whose measured speed to use.")] = DEFAULT_MODEL,
    vectors_per_s_per_worker: Annotated[
        float | None,
        typer.Option(min=0.001, max=1e9, help="Vectors per second of one worker, as you measured them for your texts."),
    ] = None,
    dim: Annotated[int, typer.Option(min=1, max=100_000, help="Numbers of a vector.")] = 384,
    headroom: Annotated[float, typer.Option(min=0, max=0.9, help="Share of each process that stays free.")] = 0.3,
    in_json: Json = False,
) -> None:
    """Compute how large a deployment must be for a rate of requests.

    Processes and cores for gateways, workers and Redis, the bandwidth between
    them, and the limits of one gateway, one worker process and one Redis. It
    starts nothing: it computes from figures that `make bench` measured, and
    prints where they come from. No figure was measured on a GPU.

    redbatch size --rate 2000

    redbatch size --rate 500 --inputs-per-request 8 --tokens-per-input 120

    redbatch size --rate 20000 --model my-model --vectors-per-s-per-worker 6000 --dim 768 --json

    To measure a model, run one worker of it under full load:
    `redbatch bench --clients 256` prints inputs/s.
    """
    from redbatch.size.command import show_size
    from redbatch.size.estimate import Requirements

    needed = Requirements(rate, inputs_per_request, tokens_per_input, dim, headroom)
    raise typer.Exit(show_size(needed, model, vectors_per_s_per_worker, in_json=in_json))
