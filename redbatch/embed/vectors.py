"""What `redbatch embed` computes: a vector for each row."""

from __future__ import annotations

from collections.abc import Mapping

from redbatch.embed.columns import ColumnChoice
from redbatch.embed.jobs import NO_FORM
from redbatch.embed.output_columns import VectorColumn
from redbatch.embed.plan import Work
from redbatch.embed.requests import EmbedRoute


def vector_work(fields: Mapping[str, object]) -> Work:
    """Returns the work of `redbatch embed`; `fields` are options of each job, such as `prompt_name`."""
    choice = ColumnChoice(VectorColumn.names, drops_text=True)
    return Work("embed", "vector", fields, NO_FORM, EmbedRoute(fields), choice, lambda _rows, _slices: VectorColumn())
