"""Multi-vector encoders (ColBERT): a vector for each token, and scores of pairs by late interaction.

sentence-transformers' MultiVectorEncoder does all the work: its `encode_query`, `encode_document` and `similarity` are
the reference. A query may be filled up to a fixed length, and a document may lack vectors of some of its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sentence_transformers import MultiVectorEncoder

from gpuworker.backends.base import TextParts, UnsupportedError
from gpuworker.backends.model_loading import fast_tokenizer_of, load_model
from gpuworker.backends.prompts import Prompts
from gpuworker.backends.sentence_runner import SentenceRunner
from gpuworker.backends.tokenizer import ModelTokenizer
from gpuworker.backends.transformer_backend import TransformerBackend
from gpuworker.backends.whole_texts import CHARS_PER_TOKEN, CUTS_ITSELF
from gpuworker.model_spec import ModelLoadError
from shared.messages import DEFAULT_OPTIONS, EMBED, MULTI_VECTOR, MULTI_VECTOR_OPS, SCORE, Input, Options

if TYPE_CHECKING:
    import torch

    from gpuworker.backends.base import Vector
    from gpuworker.ipc.engine_options import EngineOptions
    from gpuworker.model_spec import Model

QUERY_PROMPT = "query"
"""The prompt of texts that are queries. All other texts are documents."""


@dataclass(frozen=True, slots=True)
class LateText:
    """A text for a model that tokenizes it itself: a document, or a query, or a document to score for a query.

    Attributes:
        text: without its prompt.
        prompt_name: of the model's prompts; None: that of documents.
        query: that the document is scored for; None if vectors are wanted.
    """

    text: str
    prompt_name: str | None = None
    query: str | None = None

    @property
    def tokens(self) -> int:
        """Its approximate length."""
        return max(1, (len(self.text) + len(self.query or "")) // CHARS_PER_TOKEN)

    @property
    def truncated(self) -> bool:
        """False: the model cuts a text without saying so."""
        return False


class MultiVectorRunner(SentenceRunner):
    """Runs batches of a multi-vector encoder, one at a time."""

    model: MultiVectorEncoder

    def run(self, batch: Sequence[LateText], op: str = EMBED, *, exclusive: bool, raw: bool = False) -> Any:  # noqa: ANN401, ARG002 - vectors; there is no normalization to leave out
        """Returns vectors of each text, or its score for SCORE; for EMBED its first vector, which shows their size."""
        self._use_threads(exclusive=exclusive)
        if op == SCORE:
            return self._scores(batch)
        vectors = self._vectors(batch)
        return [each[0] for each in vectors] if op == EMBED else vectors

    def _vectors(self, batch: Sequence[LateText]) -> list[Vector]:
        vectors: dict[int, Vector] = {}
        for name in {each.prompt_name for each in batch}:
            places = [place for place, each in enumerate(batch) if each.prompt_name == name]
            for place, found in zip(places, self._encode([batch[place].text for place in places], name), strict=True):
                vectors[place] = found.float().cpu().numpy()
        return [vectors[place] for place in range(len(batch))]

    def _encode(self, texts: list[str], prompt_name: str | None) -> list[torch.Tensor]:
        if prompt_name == QUERY_PROMPT:
            found = self.model.encode_query(texts, batch_size=len(texts), show_progress_bar=False)
        else:
            prompt = "" if prompt_name == "" else None
            found = self.model.encode_document(
                texts, prompt_name or None, prompt, batch_size=len(texts), show_progress_bar=False
            )
        return cast("list[torch.Tensor]", found)

    def _scores(self, batch: Sequence[LateText]) -> Vector:
        """Returns the score of each document for its query, of shape (documents, 1)."""
        queries = list(dict.fromkeys(each.query or "" for each in batch))
        of_query = dict(zip(queries, self._encode(queries, QUERY_PROMPT), strict=True))
        documents = self._encode([each.text for each in batch], None)
        scores = self.model.similarity_pairwise([of_query[each.query or ""] for each in batch], documents)
        return cast("Vector", scores.float().cpu().numpy()[:, None])


class MultiVectorBackend(TransformerBackend):
    """A multi-vector encoder. See TransformerBackend, and gpuworker.backends.base.PartsBackend.

    Raises:
        ModelLoadError: see TransformerBackend; or the options have it run in another way than the library's.
    """

    ops = frozenset(MULTI_VECTOR_OPS)
    parts: Sequence[str] = (MULTI_VECTOR,)
    runner_class = MultiVectorRunner
    takes_whole_texts = True

    def __init__(self, model: Model, options: EngineOptions) -> None:
        if options.backend != "torch" or options.compile:
            raise ModelLoadError(
                f"{model.name} is a multi-vector encoder, which runs in torch as it is: leave out --backend and "
                "--compile"
            )
        self._own_tokenizer: ModelTokenizer | None = None
        super().__init__(model, options)

    def _load(self, model: Model, options: EngineOptions, dtype: torch.dtype) -> MultiVectorEncoder:
        loaded: MultiVectorEncoder = load_model(MultiVectorEncoder, model, options, self.device, dtype)
        tokenizer = fast_tokenizer_of(loaded)
        if tokenizer is not None:
            self._own_tokenizer = ModelTokenizer(tokenizer, loaded)
        self._prompts = Prompts(loaded)
        return loaded

    def _describe(self, *arguments: Any) -> None:  # noqa: ANN401 - as in the base class
        super()._describe(*arguments)
        if self._own_tokenizer is not None:
            self.max_input_tokens = self._own_tokenizer.max_tokens or 0

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> Sequence[LateText]:
        """Returns texts with their prompt; a query of the options makes them documents to score.

        Raises:
            InputRefusedError: there is no such prompt, the library cuts at the right and at the model's maximum only,
                it takes no instruction, or an input is no text.
        """
        self._prompts.find(options.prompt_name)
        if options.truncate != "right":
            raise UnsupportedError(CUTS_ITSELF)
        if any((options.max_tokens, options.max_query_tokens, options.max_document_tokens)):
            raise UnsupportedError("This model cuts long texts itself, at its own maximum length: name no other.")
        if options.instruction is not None:
            raise UnsupportedError("instruction: this model has no place for one: leave it out.")
        texts = [LateText(each, options.prompt_name, options.query) for each in inputs if isinstance(each, str)]
        if len(texts) < len(inputs):
            raise UnsupportedError("This model takes texts, no token ids.")
        return texts

    def run_parts(
        self,
        batch: Any,  # noqa: ANN401 - texts
        wanted: Sequence[frozenset[str]],  # noqa: ARG002 - it has one part
        *,
        exclusive: bool,
        raw: bool = False,  # noqa: ARG002 - see `run`
    ) -> list[TextParts]:
        """Returns the vectors of the tokens of each text, in order."""
        return [TextParts(multi_vector=each) for each in self._runner.run(batch, MULTI_VECTOR, exclusive=exclusive)]

    @property
    def _shown_tokenizer(self) -> ModelTokenizer | None:
        return self._own_tokenizer
