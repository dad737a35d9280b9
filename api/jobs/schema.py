"""The body of POST /jobs."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from api.dialects.request import MAX_MODEL

NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
"""Content types of a body of lines; any other body is one JSON document."""


class JobBody(BaseModel):
    """Body of POST /jobs, unless its content type is one of lines."""

    model_config = ConfigDict(strict=True, extra="ignore")

    text: str | None = Field(default=None, description="One text.", examples=["Hello, world"])
    texts: list[str] | None = Field(default=None, description="Several texts.", fail_fast=True)
    priority: Literal["interactive", "bulk"] | None = Field(
        default=None, description="bulk (the default) or interactive. Overrides the header X-Priority."
    )
    model: str | None = Field(
        default=None, max_length=MAX_MODEL, description="As on /embed; overrides the header X-Model."
    )
