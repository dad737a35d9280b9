"""Any sentence-transformers model, through torch or another runtime.

The usual text model is a transformer behind a fast tokenizer. For that one the steps of `SentenceTransformer.encode`
are taken apart, so that texts are tokenized before the device is free and batches are planned by their true length.
Any other model is given whole texts, and `encode` itself does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import sentence_transformers
import structlog
import torch
from joblib import cpu_count
from sentence_transformers.base.modules.transformer import Transformer
from transformers import PreTrainedTokenizerFast

from gpuworker.backends import buckets, loading, packing, prepacking
from gpuworker.backends.base import OF_TEXTS, InputRefusedError, Token
from gpuworker.backends.equivalence import PROBE, TOLERANCE, distance
from gpuworker.backends.onnx_graph import Graph, graph_of
from gpuworker.backends.revision import revision_of
from gpuworker.backends.runtimes import RUNTIMES, Cores
from gpuworker.backends.tokenizer import ModelTokenizer, Tokenized
from gpuworker.backends.transfer import transfer_of
from gpuworker.models import Model, ModelLoadError, one_line
from shared.messages import DEFAULT_OPTIONS, EMBED, EMBED_ALL, Input, Options

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector
    from gpuworker.ipc.engine_options import EngineOptions

log = structlog.get_logger()

CPU_BATCH_TOKENS = 512
GPU_BATCH_TOKENS = 16_384
MAX_RUNNERS = 8
"""Each runner needs Python for a millisecond or two of a batch's 80: beyond this they would wait for each other."""

CUDA_RUNNERS = 2
"""One hands in the next batch while the other waits for its vectors."""

CHARS_PER_TOKEN = 4

RUNS_TO_REPLAY = 3
"""Of a shape the first run is as ever, the second records a CUDA graph, and the third replays it."""


@dataclass(frozen=True, slots=True)
class Whole:
    """An input as text, its length in tokens a guess."""

    text: str

    @property
    def tokens(self) -> int:
        """About its length: English text has some four characters a token."""
        return max(1, len(self.text) // CHARS_PER_TOKEN)


class SentenceBackend:
    """A sentence-transformers model on one device.

    On a CPU several batches run at once, each on its share of the cores: threads that work on one batch wait for each
    other at each of its hundred operations, and for whichever of them was put aside for another process.

    Raises:
        ModelLoadError: the model is not there, or is none, or cannot be run as the options say.
    """

    def __init__(self, model: Model, options: EngineOptions) -> None:
        torch.set_num_threads(1)  # of this thread: it loads and warms up, and needs no helpers that outlive that
        self.ops = OF_TEXTS
        self.device = loading.device_of(options)
        on_cpu = self.device == "cpu"
        dtype = loading.dtype_of(options.dtype, self.device)
        # A CPU begins with float32, in which a model shows whether it can run without padding.
        self._model = loading.load(model, options, self.device, torch.float32 if on_cpu else dtype)
        self.device = str(self._model.device)
        self.prepares_ahead = not on_cpu
        self.runs_sequentially = self.device.startswith("cuda")
        self.max_batch_tokens = CPU_BATCH_TOKENS if on_cpu else GPU_BATCH_TOKENS
        self._tokenizer = loading.fast_tokenizer_of(self._model)
        self._tokenizer_inputs = [] if self._tokenizer is None else self._tokenizer.model_input_names
        self._reader = None if self._tokenizer is None else ModelTokenizer(self._tokenizer, self._model)
        self._transfer = transfer_of(self.device)
        self.normalizes = loading.normalizes(self._model)
        self._describe(model, dtype, options.backend)
        self._cores = options.cores or cpu_count()
        self.runners = self._runners(options)
        each = max(1, self._cores // self.runners)
        # What is compiled is so for a number of threads: one number is enough.
        self._threads = {True: each if options.compile else self._cores, False: each}
        has_graphs = options.compile and self.runs_sequentially
        self._buckets = options.shape_buckets == "on" or (options.shape_buckets == "auto" and has_graphs)
        self._shapes: list[tuple[int, int]] = []
        if has_graphs and self._buckets:
            most = options.max_batch_tokens or self.max_batch_tokens
            self._shapes = list(buckets.shapes(options.max_batch_size, most, self._longest))
        self.packs = False
        try:
            self._ready(model, options, dtype)
            self.dim = len(self.run(self.collate(self.tokenize(["dimension"])), exclusive=False)[0])
        except (ModelLoadError, torch.OutOfMemoryError):  # the latter may pass
            raise
        except Exception as error:  # the libraries raise whatever they meet
            raise ModelLoadError(f"model {model.name} gives no vector of a text here: {one_line(error)}") from error

    def _describe(self, model: Model, dtype: torch.dtype, backend: str) -> None:
        """Sets what is said of the model."""
        self.commit = loading.commit_of(self._model)
        kind = self.device.partition(":")[0]  # all of a host's GPUs give the same
        what = f"{self.commit} {dtype} {kind} {sentence_transformers.__version__}"
        self.revision = revision_of(model.path, what if backend == "torch" else f"{what} {backend}")
        self.dtype = str(dtype).removeprefix("torch.")
        self.pooling = loading.pooling_of(self._model)
        self.max_input_tokens = 0 if self._reader is None else self._reader.longest or 0

    def _runners(self, options: EngineOptions) -> int:
        if self._tokenizer is None:
            return 1  # `encode` is for one thread at a time
        if self.device == "cpu":
            cores_each = -(-self._cores // MAX_RUNNERS)
            return options.runners or self._cores // cores_each
        if options.compile and (options.runners or 1) > 1:
            raise ModelLoadError(
                "--compile on a GPU runs one batch at a time, since the next is written over it: no --runners"
            )
        return options.runners or (CUDA_RUNNERS if self.runs_sequentially and not options.compile else 1)

    def _ready(self, model: Model, options: EngineOptions, dtype: torch.dtype) -> None:
        """Has the transformer run as fast as it can here.

        Raises:
            ModelLoadError: it cannot be run as the options say, or gives other vectors then.
        """
        if options.backend != "torch":
            self._instead(f"--backend {options.backend}", dtype, lambda: self._use_graph(model, options))
            return
        if self.device == "cpu":
            self.packs = self._may_pack(options) and self._pack(torch.float32)
            loading.cast(self._model, dtype)
        else:
            loading.cast(self._model, dtype)
            self.packs = self._may_pack(options) and self.runs_sequentially and self._pack(dtype)
        if options.compile:
            self._instead("--compile", dtype, lambda: self._compile(model))
        elif options.prepack and self.device == "cpu":
            layers = prepacking.prepack(self._model, self._threads.values())
            log.debug("weights laid out ahead", layers=layers)

    def _may_pack(self, options: EngineOptions) -> bool:
        return not (options.compile or self._buckets)

    def _instead(self, what: str, dtype: torch.dtype, change: Callable[[], None]) -> None:
        """Changes how the transformer is run, and sees that its vectors stay what they are."""
        expected = self._encode(PROBE)
        try:
            change()
            found = [self.run(self.collate(self.tokenize(PROBE)), exclusive=exclusive) for exclusive in (True, False)]
        except ModelLoadError:
            raise
        except Exception as error:  # the libraries raise whatever they meet
            raise ModelLoadError(f"{what} cannot run this model here: {one_line(error)}") from error
        far = max(distance(np.asarray(each), expected) for each in found)
        if not far <= TOLERANCE[dtype]:
            raise ModelLoadError(f"{what} gives other vectors than torch does, off by {far:.1g} of 1: leave it out")

    def _compile(self, model: Model) -> None:
        """Has torch compile the transformer, for any shape; a GPU then replays a graph for each that it has met."""
        transformer = self._model[0]
        if self._tokenizer is None or not isinstance(transformer, Transformer):
            raise ModelLoadError(f"--compile is for transformers of texts, and {model.name} is none")
        # Not `Module.compile`, which is for calls of the module: here it is its `forward` that is called.
        mode = "reduce-overhead" if self.runs_sequentially else "default"
        transformer.model.forward = torch.compile(transformer.model.forward, dynamic=True, mode=mode)

    def _use_graph(self, model: Model, options: EngineOptions) -> None:
        """Puts a graph, run by another runtime, in the transformer's place."""
        transformer = self._model[0]
        if self._tokenizer is None or not isinstance(transformer, Transformer):
            raise ModelLoadError(f"--backend {options.backend} runs transformers of texts: {model.name} needs torch")
        path = graph_of(transformer.model, self._tokenizer_inputs, model.path, self.commit)
        make = RUNTIMES[options.backend]
        sessions = {threads: make(path, Cores(self._cores, threads), self.dtype) for threads in self._threads.values()}
        self._model[0] = Graph(sessions)

    def _pack(self, dtype: torch.dtype) -> bool:
        """Has the transformer run batches without padding, if it then gives what it gives otherwise."""
        transformer = self._model[0]
        if self._tokenizer is None or not isinstance(transformer, Transformer):
            return False
        usual = transformer.model.config._attn_implementation  # noqa: SLF001 - there is no public way to ask
        expected = self._encode(PROBE)
        self.packs = True  # from here on, for the trial
        self._first_position = packing.first_position_of(transformer.model)
        try:
            transformer.model.set_attn_implementation(packing.IMPLEMENTATION)
            found = self.run(self.collate(self.tokenize(PROBE)), exclusive=False)
            if distance(np.asarray(found), expected) <= TOLERANCE[dtype]:
                return True
        except Exception as error:  # noqa: BLE001 - not every model can be served so, and each says it in its own way
            log.debug("this model does not pack", error=type(error).__name__)
        transformer.model.set_attn_implementation(usual)
        self.packs = False
        return False

    @property
    def _longest(self) -> int:
        return self.max_input_tokens or self.max_batch_tokens

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> Sequence[Tokenized | Whole]:
        """Returns token ids with the model's special tokens, cut to its longest sequence.

        Raises:
            InputRefusedError: see gpuworker.backends.base.
        """
        if self._reader is not None:
            return self._reader.read(inputs, options)
        raw = self.normalizes and options.normalize is False
        if raw or (options.prompt_name, options.truncate) != (None, "right"):
            raise InputRefusedError(
                "This model takes texts as they are: without prompt_name, truncate, or normalize=false."
            )
        if any(isinstance(each, bytes) for each in inputs):
            raise InputRefusedError("This model takes texts, no token ids.")
        return [Whole(each) for each in inputs if isinstance(each, str)]

    def collate(self, inputs: Sequence[Any]) -> Any:  # noqa: ANN401 - tensors by name, or texts
        """Returns padded tensors on the device, or the texts."""
        if self._tokenizer is None:
            return [each.text for each in inputs]
        sequences = [each.ids for each in inputs]
        features = self._packed(sequences) if self.packs else self._padded(self._tokenizer, sequences)
        if "token_type_ids" in self._tokenizer_inputs:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        return self._transfer.to_device(features)

    def _packed(self, sequences: list[list[int]]) -> dict[str, Any]:
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        features = packing.pack([sequences[i] for i in order], self._first_position)
        return {**features, "places": np.argsort(order)}

    def _padded(self, tokenizer: PreTrainedTokenizerFast, sequences: list[list[int]]) -> dict[str, Any]:
        number = len(sequences)
        if not self._buckets:
            return dict(tokenizer.pad({"input_ids": sequences}, padding=True, return_tensors="pt"))
        texts, tokens = buckets.shape_of(number, max(map(len, sequences)), self._longest)
        filled = sequences + [sequences[-1]] * (texts - number)  # the same once more: no row may be empty
        padded = tokenizer.pad({"input_ids": filled}, padding="max_length", max_length=tokens, return_tensors="pt")
        return {**padded, "places": np.arange(number)}

    def run(self, batch: Any, op: str = EMBED, *, exclusive: bool, raw: bool = False) -> Vector | list[Vector]:  # noqa: ANN401
        """Returns what `encode` returns for these texts, `raw` without the step that normalizes; or that of each token.

        Raises:
            InputRefusedError: see gpuworker.backends.base.
        """
        if op == EMBED_ALL:
            return self._run_each_token(batch, exclusive=exclusive)
        if self._tokenizer is None:
            self._use_threads(exclusive=exclusive)
            return self._encode(batch)
        steps = list(self._model)[:-1] if raw and self.normalizes else [self._model]
        found = self._computed(batch, steps, "sentence_embedding", exclusive=exclusive)
        places = batch.get("places")
        return found if places is None else found[places]

    def _run_each_token(self, batch: Any, *, exclusive: bool) -> list[Vector]:  # noqa: ANN401
        """Returns what the transformer gives for each token, special ones included."""
        if self._tokenizer is None:
            raise InputRefusedError("This model has no vectors of tokens.")
        found = self._computed(batch, [self._model[0]], "token_embeddings", exclusive=exclusive)
        if "cu_seq_lens_q" in batch:
            rows = np.split(found[0], batch["cu_seq_lens_q"].tolist()[1:-1])
        else:
            mask = batch["attention_mask"].bool().cpu().numpy()
            rows = [vectors[kept] for vectors, kept in zip(found, mask, strict=True)]
        return rows if "places" not in batch else [rows[place] for place in batch["places"]]

    def _computed(
        self, batch: Mapping[str, Any], steps: Sequence[torch.nn.Module], name: str, *, exclusive: bool
    ) -> Vector:
        """Returns the feature of that name, which these parts of the model, one after the other, make of a batch."""

        def compute(given: dict[str, Any]) -> torch.Tensor:
            features = {**given, "modality": "text"}
            features.pop("places", None)
            for step in steps:
                features = step(features)
            found: torch.Tensor = features[name]
            return found

        self._use_threads(exclusive=exclusive)
        with torch.inference_mode():
            return self._transfer.computed(batch, compute)

    def _use_threads(self, *, exclusive: bool) -> None:
        if self.device == "cpu":
            torch.set_num_threads(self._threads[exclusive])

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:
        """Returns the tokens of each text. Raises InputRefusedError: see gpuworker.backends.base."""
        return self._readable().show_tokens(inputs, options)

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:
        """Returns the text that each input's token ids make. Raises InputRefusedError: see gpuworker.backends.base."""
        return self._readable().decode(inputs, options)

    def _readable(self) -> ModelTokenizer:
        if self._reader is None:
            raise InputRefusedError("This model's tokenizer is its own affair: it shows no tokens.")
        return self._reader

    def busy_s(self) -> float:
        """Returns how long a GPU has computed since this was last asked, by its own clock; 0 for other devices."""
        return self._transfer.busy_s()

    def free_memory(self) -> None:
        """Has torch give back what it holds of the GPU's memory."""
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()

    def warmup(self) -> None:
        """Runs one short and one longer batch: the first ones allocate memory and choose kernels.

        Each shape that is to become a graph is run as often as that takes.
        """
        words = "the quick brown fox jumps over the lazy dog "
        for repeats, number in ((1, 1), (3, 8)):
            self.run(self.collate(self.tokenize([words * repeats] * number)), exclusive=False)
        try:
            for texts, tokens in self._shapes:
                for _ in range(RUNS_TO_REPLAY):
                    self.run(self.collate([Tokenized([0] * tokens)] * texts), exclusive=False)
        except torch.OutOfMemoryError:
            log.warning("no memory for graphs of all shapes: the rest is met when it comes")
            self.free_memory()
        self.busy_s()  # that was nobody's work

    def _encode(self, texts: Sequence[str]) -> Vector:
        vectors: Vector = self._model.encode(
            list(texts), batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True
        )
        return vectors.astype("float32", copy=False)
