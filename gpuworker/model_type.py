"""What a model is, by the files that describe it: what it returns, and with which operations. Pure.

These files are someone else's: a value of an unexpected type counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal, NamedTuple

from shared.messages import (
    CLASSIFIER_OPS,
    CLASSIFY,
    DENSE,
    EMBED,
    EMBED_PARTS,
    EMBED_SPARSE,
    MULTI_VECTOR,
    MULTI_VECTOR_OPS,
    PREDICT,
    RERANKER_OPS,
    SCORE,
    SIGMOID,
    SOFTMAX,
    SPARSE,
    SPARSE_OPS,
    TEXT_OPS,
)
from shared.model_names import numbered_labels

TypeName = Literal[
    "embedding", "hybrid", "reranker", "classifier", "sparse", "multi-vector", "function", "causal", "token-classifier"
]

HEADS: Mapping[str, str] = {"sparse_linear": SPARSE, "colbert_linear": MULTI_VECTOR}
"""Files beside a transformer with a layer that makes another part of each token's vector, and that part: see BGE-M3."""

DEFAULT_NUM_LABELS = 2
"""Of a model whose config.json names no labels: Transformers leaves its default out of the file."""

MULTI_LABEL = "multi_label_classification"

_OPS: Mapping[TypeName, tuple[str, ...]] = {
    "embedding": TEXT_OPS,
    "reranker": RERANKER_OPS,
    "classifier": CLASSIFIER_OPS,
    "sparse": SPARSE_OPS,
    "multi-vector": MULTI_VECTOR_OPS,
}
_NEEDED_OPS: Mapping[TypeName, AbstractSet[str]] = {
    "hybrid": {EMBED, EMBED_PARTS},
    "embedding": {EMBED},
    "multi-vector": {EMBED_PARTS},
    "reranker": {SCORE},
    "classifier": {CLASSIFY},
    "sparse": {EMBED_SPARSE},
    "function": {PREDICT},
}
"""Operations that tell a type from those below it: a model has the first type of which it offers all."""

_REFUSALS: Mapping[TypeName, str] = {
    "sparse": "it is a sparse encoder with a separate way for queries (inference-free SPLADE), which is not served yet",
    "token-classifier": "it labels single tokens, or answers questions, and such models are not served: a class that "
    "runs it is (docs/functions.md)",
    "causal": "it is a language model that generates text, and its files say neither how texts become vectors nor how "
    "a query and a document become a prompt. For embeddings, save it with sentence-transformers as a "
    "SentenceTransformer with its Pooling",
}
_TEMPLATE = (
    "it is a reranker made of a language model, and it has no template for a query and a document, without which its "
    "scores would be random: add the chat_template.jinja of its authors, with the roles `query` and `document`"
)


class ModelFiles(NamedTuple):
    """The files of a model that describe it, parsed; one that is missing is empty.

    Attributes:
        config: config.json of its transformer.
        modules: modules.json: the steps of a sentence-transformers model.
        settings: config_sentence_transformers.json.
        templates: its chat templates.
        heads: the names of HEADS that it has.
    """

    config: Mapping[str, Any]
    modules: Sequence[Mapping[str, Any]] = ()
    settings: Mapping[str, Any] = {}
    templates: Sequence[str] = ()
    heads: Sequence[str] = ()


class ModelType(NamedTuple):
    """What a model is.

    Attributes:
        name: in a word.
        labels: of a reranker or classifier, in the order of its outputs.
        activation: how its outputs become scores: SIGMOID, SOFTMAX; empty if it returns vectors.
        refusal: why it is not served, and what to do; empty if it is.
        parts: what a hybrid model returns of a text, of messages.PARTS.
    """

    name: TypeName
    labels: tuple[str, ...] = ()
    activation: str = ""
    refusal: str = ""
    parts: tuple[str, ...] = ()

    @property
    def ops(self) -> tuple[str, ...]:
        """The operations that it offers."""
        if self.name == "hybrid":
            return (*TEXT_OPS, *((EMBED_SPARSE,) if SPARSE in self.parts else ()), EMBED_PARTS)
        return () if self.refusal else _OPS[self.name]


def type_of(files: ModelFiles) -> ModelType:
    """Returns what a model is.

    A model that sentence-transformers has saved says so itself. Otherwise the class of its transformer does: one with a
    classification head is a reranker if it has a single label. Any other transformer makes embeddings, since
    sentence-transformers takes the mean of its tokens then.
    """
    steps = [str(each.get("type", "")).rpartition(".")[2] for each in files.modules]
    saved_as = files.settings.get("model_type")
    if saved_as == "SparseEncoder" or "SpladePooling" in steps:
        return _refused("sparse") if "Router" in steps else ModelType("sparse")
    if saved_as in ("MultiVectorEncoder", "ColBERT") or "HF_ColBERT" in _list_of_texts(
        files.config.get("architectures")
    ):
        return ModelType("multi-vector")
    if saved_as == "CrossEncoder":
        return _language_model_reranker(files) if "LogitScore" in steps else _scoring_type(files.config)
    found = _type_of_transformer(files) if steps in ([], ["Transformer"]) else ModelType("embedding")
    parts = (DENSE, *(part for head, part in HEADS.items() if head in files.heads))
    return ModelType("hybrid", parts=parts) if found.name == "embedding" and len(parts) > 1 else found


def _type_of_transformer(files: ModelFiles) -> ModelType:
    """Returns what a transformer is that comes without any further step."""
    classes = _list_of_texts(files.config.get("architectures"))
    if any(each.endswith("ForSequenceClassification") for each in classes):
        return _scoring_type(files.config)
    if any(each.endswith(("ForTokenClassification", "ForQuestionAnswering")) for each in classes):
        return _refused("token-classifier")
    if any(each.endswith(("ForCausalLM", "LMHeadModel")) for each in classes):
        return _language_model_reranker(files) if _has_pair_template(files) else _refused("causal", _TEMPLATE)
    return ModelType("embedding")


def name_of_ops(ops: Sequence[str]) -> TypeName:
    """Returns the name of the type that offers these operations. Some models lack those that need tokens."""
    return next((name for name, needed in _NEEDED_OPS.items() if needed <= set(ops)), "embedding")


def scoring_type(labels: Sequence[str], *, is_multi_label: bool) -> ModelType:
    """Returns the type of a model with these labels: a reranker if there is one, otherwise a classifier."""
    if len(labels) == 1:
        return ModelType("reranker", tuple(labels), SIGMOID)
    return ModelType("classifier", tuple(labels), SIGMOID if is_multi_label else SOFTMAX)


def _scoring_type(config: Mapping[str, Any]) -> ModelType:
    return scoring_type(labels_of(config), is_multi_label=config.get("problem_type") == MULTI_LABEL)


def labels_of(config: Mapping[str, Any]) -> list[str]:
    """Returns the names of the outputs of a classification head."""
    named = config.get("id2label")
    if isinstance(named, Mapping) and named and all(str(each).isdecimal() for each in named):
        return [str(label) for _, label in sorted((int(index), label) for index, label in named.items())]
    number = config.get("num_labels")
    return numbered_labels(number if isinstance(number, int) else DEFAULT_NUM_LABELS)


def _language_model_reranker(files: ModelFiles) -> ModelType:
    if _has_pair_template(files):
        return scoring_type(numbered_labels(1), is_multi_label=False)
    return ModelType("reranker", refusal=_TEMPLATE)


def _refused(name: TypeName, more: str = "") -> ModelType:
    return ModelType(name, refusal=f"{_REFUSALS[name]}. To rerank, {more}" if more else _REFUSALS[name])


def _has_pair_template(files: ModelFiles) -> bool:
    return any("query" in each and "document" in each for each in files.templates)


def _list_of_texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
