"""Settings about the model, and how an engine runs it."""

from __future__ import annotations

import json
import os
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from gpuworker.model_spec import ModelLoadError, parse_model
from shared.model_names import DEFAULT_MODEL
from shared.option_words import OtherValue, ValueForm
from shared.settings import QueueName, QueueSettings

AUTO = OtherValue("auto")
_MODEL_ARGS_WORDS = 'it takes a JSON object, such as {"name": "value"}'


class ModelSettings(QueueSettings):
    """Which model a worker serves, on which devices, and how."""

    model: str = Field(
        default=DEFAULT_MODEL,
        title="Name, path, hub id or class of the model",
        description="minilm (all-MiniLM-L6-v2, bundled), a path or hub id of a sentence-transformers model, your own "
        "class as package.module:Class, null, or simulated:base_ms=5,item_ms=3.",
    )
    model_revision: Annotated[str, ValueForm("the name of a commit, a branch or a tag")] | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._/-]{1,128}$",
        title="Commit, branch or tag of the hub id",
        description="Commit, branch or tag of a hub id to load. A commit never changes.",
    )
    model_args: str = Field(
        default="",
        max_length=64 * 2**10,
        title="Keyword arguments of your class, as JSON",
        description="Keyword arguments of your own class, as a JSON object; empty: none.",
    )
    queue: QueueName | None = Field(
        default=None, description="Queue to serve; the slug of the model's name when not set."
    )
    backend: Literal["torch", "onnx", "openvino"] = Field(
        default="torch",
        title="Runtime of a sentence-transformers model",
        description="Runtime of a sentence-transformers model: torch anywhere; on a CPU also onnx (ONNX Runtime) or "
        "openvino, each an extra of the package. See docs/performance.md for the fastest one.",
    )
    device: Annotated[str, ValueForm("auto, cpu, mps, cuda or cuda:N")] = Field(
        default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, mps, cuda or cuda:N."
    )
    devices: Annotated[str, ValueForm("all, or devices separated by commas, such as cuda:0,cuda:1")] = Field(
        default="",
        pattern=r"^(|all|(cpu|mps|cuda(:\d+)?|\d+)(,\s*(cpu|mps|cuda(:\d+)?|\d+))*)$",
        title="Several devices, each with an engine",
        description="Several devices, each with its own engine: all (GPUs that this process sees), or cuda:0,cuda:1 "
        "and so on; a number N is cuda:N. Takes precedence over --device.",
    )
    span: bool = Field(
        default=False,
        title="One engine sees all GPUs of --devices",
        description="One engine sees all GPUs of --devices, for your own class that uses several at once.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="Number format of the model; auto: float32 on a CPU, bfloat16 or float16 on a GPU. "
        "bfloat16 is nearly twice as fast on CPUs that have it: see docs/performance.md.",
    )
    cores: Annotated[int | None, AUTO] = Field(
        default=None,
        ge=1,
        le=1_024,
        title="Number of cores of the engine on a CPU",
        description="Number of cores that the engine uses on a CPU, and of its tokenizer's threads on a GPU; auto, or "
        "not set: all that this process may use.",
    )
    runners: Annotated[int | None, AUTO] = Field(
        default=None,
        ge=1,
        le=64,
        title="Number of batches that run at once",
        description="Number of batches that run at once and share the cores; auto, or not set: one for each core up to "
        "8 (with more cores, each batch uses several), 1 on a GPU.",
    )
    compile: bool = Field(
        default=False,
        description="Compile the model with torch; on a GPU each shape of a batch becomes a CUDA graph. The start "
        "takes longer, on a GPU by minutes; on a CPU batches are hardly faster: see docs/performance.md.",
    )
    shape_buckets: Literal["auto", "on", "off"] = Field(
        default="auto",
        title="Pad batches to few shapes",
        description="Pad batches to few shapes, whose sides are powers of two or 1.5 times these; auto: for CUDA "
        "graphs (--compile on a GPU). Elsewhere the padding costs more than it gains. A batch padded so has up to 1.5 "
        "times the tokens that max_batch_tokens allows, or more where that is below 2,000 or the inputs are short.",
    )
    prepack: bool = Field(
        default=True,
        title="On a CPU: arrange float32 weights once",
        description="On a CPU, in float32: arrange weights for the matrix product once. About 8 % faster, a single "
        "text 15 %; takes additional memory of twice the size of the weights, on some CPUs three times.",
    )

    int8_ranges: Annotated[str, ValueForm("the path of a .npy file")] | None = Field(
        default=None,
        title="File with the ranges of int8 vectors",
        description="A .npy file of shape (2, dimensions): the smallest and the largest number of each dimension, for "
        "vectors as int8 or uint8. By default one range fits all: see docs/models.md.",
    )

    @field_validator("model")
    @classmethod
    def _simulated_times(cls, value: str) -> str:
        """Other names need files or packages, which `run` looks for."""
        if value.startswith("simulated:"):
            try:
                parse_model(value)
            except ModelLoadError as error:
                raise ValueError(str(error).removeprefix(f"model {value}: ")) from None
        return value

    @field_validator("int8_ranges")
    @classmethod
    def _existing_file(cls, value: str | None) -> str | None:
        """What it holds must fit the model, which only an engine knows."""
        if value is not None and not os.path.isfile(value):  # noqa: PTH113 - Path raises OSError for some names
            raise ValueError("it takes the path of a .npy file, and there is no such file")
        return value

    @field_validator("model_args")
    @classmethod
    def _json_object(cls, value: str) -> str:
        try:
            given = json.loads(value or "{}")
        except ValueError as error:
            raise ValueError(f"{_MODEL_ARGS_WORDS}; this is not valid JSON: {error}") from None
        if not isinstance(given, dict):
            raise ValueError(_MODEL_ARGS_WORDS)  # noqa: TRY004 - pydantic's own
        return value

    @model_validator(mode="after")
    def _compiles_with_torch(self) -> Self:
        if self.compile and self.backend != "torch":
            raise ValueError(f"compile: only backend torch can compile, not {self.backend}")
        return self
