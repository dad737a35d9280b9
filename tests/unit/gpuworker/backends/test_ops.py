"""The operations of a model, as its worker reports them before it is loaded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuworker.backends.selection import load_backend
from gpuworker.model_spec import ops_of, parse_model
from tests.unit.gpuworker.backends.options import OPTIONS


@pytest.mark.parametrize(
    "name",
    [
        "null",
        "simulated:base_ms=0,item_ms=0",
        "simulated:labels=1",
        "simulated:labels=3",
        "tests.integration.functions.function_models:Outer",
        pytest.param("minilm", marks=pytest.mark.model),
    ],
)
def test_a_models_name_says_what_its_backend_offers(name: str) -> None:
    """A gateway that refuses a job because of this report refuses no job that the loaded model could run."""
    assert set(ops_of(name)) == load_backend(parse_model(name), replace(OPTIONS, model=name)).ops
