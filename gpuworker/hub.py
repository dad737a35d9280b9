"""Checks that the hub answers before a model is downloaded: if not, its libraries repeat requests for minutes."""

from __future__ import annotations

from pathlib import Path

import structlog

from gpuworker.model_spec import FORMS, OFFLINE, Model, ModelLoadError, one_line

log = structlog.get_logger()

HUB_TIMEOUT_S = 10.0
FIRST_FILE = "modules.json"
"""The file of a model that sentence-transformers looks for first; the cache also knows if the hub has no such file."""


def check_hub(model: Model, revision: str | None) -> None:
    """Raises ModelLoadError: a model has to come from the hub, which does not answer.

    Any answer will do, also an error: loading the model then says what is wrong.
    """
    if model.kind != "sentence" or Path(model.path).is_dir():
        return
    from huggingface_hub import HfApi, constants, errors, try_to_load_from_cache  # noqa: PLC0415 - half a second

    if constants.HF_HUB_OFFLINE:
        return
    try:
        if try_to_load_from_cache(model.path, FIRST_FILE, revision=revision) is None:
            log.info("the model is downloaded from the Hugging Face hub", model=model.name)
            HfApi().model_info(model.path, revision=revision, timeout=HUB_TIMEOUT_S)
    except (errors.HfHubHTTPError, ValueError):  # ValueError: the hub has no such names
        return
    except Exception as error:  # of its HTTP library
        raise ModelLoadError(
            f"model {model.name} is no folder in {Path.cwd()}, and cannot be downloaded: {constants.ENDPOINT} does not "
            f"answer ({one_line(error)}). {OFFLINE}. {FORMS}; only minilm is bundled"
        ) from error
