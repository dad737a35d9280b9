"""What the backends of sentence-transformers models have in common: how a model is loaded, described and run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sentence_transformers
import structlog
import torch
from joblib import cpu_count

from gpuworker.backends import buckets, model_loading, precision
from gpuworker.backends.acceleration import accelerate
from gpuworker.backends.base import Token, UnsupportedError
from gpuworker.backends.prompts import Prompts
from gpuworker.backends.revision import revision_of
from gpuworker.backends.sentence_runner import SentenceRunner
from gpuworker.backends.tokenizer import ModelTokenizer, TokenizedInput
from gpuworker.backends.tokenizer_threads import set_tokenizer_threads
from gpuworker.model_spec import Model, ModelLoadError, one_line
from shared.messages import DEFAULT_OPTIONS, EMBED, TOKENIZER_OPS, Input, Options

if TYPE_CHECKING:
    from sentence_transformers.base.model import BaseModel

    from gpuworker.backends.base import Encoded, Vector
    from gpuworker.ipc.engine_options import EngineOptions

log = structlog.get_logger()

GPU_BATCH_TOKENS = 16_384
MAX_RUNNERS = 8
"""Each runner needs Python for a millisecond or two of a batch's 80 ms: more runners would wait for each other."""

RUNS_TO_REPLAY = 3
"""Of a shape, the first run is an ordinary one, the second records a CUDA graph, and the third replays it."""


class TransformerBackend(ABC):
    """A sentence-transformers model on one device.

    On a CPU several batches run at once, each on its share of the cores. Threads that work on one batch wait for each
    other at each of its hundred operations, and for any of them that the system suspends for another process.

    Raises:
        ModelLoadError: the model does not exist, cannot be loaded, or cannot run with the options.
    """

    ops: frozenset[str]
    runner_class: type[SentenceRunner] = SentenceRunner
    takes_whole_texts = False
    """Whether the library's `encode` does all the work, also of a model with a fast tokenizer."""

    cpu_batch_tokens = 512
    """The token budget on a CPU: a short text that arrives waits until such a batch has run."""

    parts: Sequence[str] = ()
    labels: Sequence[str] = ()
    activation = ""

    def __init__(self, model: Model, options: EngineOptions) -> None:
        torch.set_num_threads(1)  # of this thread: it loads and warms up, and needs no helper threads after that
        self.device = model_loading.device_of(options)
        on_cpu = self.device == "cpu"
        cores = options.cores or cpu_count()
        set_tokenizer_threads(1 if on_cpu else cores)  # on a CPU, more would compete with the model's
        dtype = precision.dtype_of(options.dtype, self.device)
        # A CPU begins with float32, in which a model shows whether it can run without padding.
        loaded = self._load(model, options, torch.float32 if on_cpu else dtype)
        for doubt in model_loading.doubts_about(loaded):
            log.warning("the vectors of this model are probably of no use", model=model.name, reason=doubt)
        self.device = str(loaded.device)
        self.splits_batches = True
        self.prepares_ahead = not on_cpu
        self.collate_runs_user_code = False
        self.retry_on: tuple[type[BaseException], ...] = ()
        self.runs_sequentially = self.device.startswith("cuda")
        self.max_batch_tokens = self.cpu_batch_tokens if on_cpu else GPU_BATCH_TOKENS
        fast_tokenizer = None if self.takes_whole_texts else model_loading.fast_tokenizer_of(loaded)
        self._tokenizer = None if fast_tokenizer is None else ModelTokenizer(fast_tokenizer, loaded)
        self.normalizes = model_loading.normalizes(loaded)
        self._describe(loaded, model, dtype, options.backend)
        # `encode` is for one thread at a time.
        self.runners = 1 if self._tokenizer is None else num_runners(options, self.device, cores)
        self._runner = self._create_runner(loaded, options, cores)
        try:
            may_pack = not (options.compile or self._uses_buckets(options))
            accelerate(self._runner, model, options, dtype, cores=cores, may_pack=may_pack)
            self.packs = self._runner.packs
            self.dim = len(
                self.run(self.collate(self.tokenize(["dimension"], self._runner.probe_options)), exclusive=False)[0]
            )
        except (ModelLoadError, torch.OutOfMemoryError):  # the latter may be temporary
            raise
        except Exception as error:  # the libraries raise errors of any class
            raise ModelLoadError(f"model {model.name} gives no vector of a text here: {one_line(error)}") from error

    @abstractmethod
    def _load(self, model: Model, options: EngineOptions, dtype: torch.dtype) -> BaseModel:
        """Returns the loaded model. Raises ModelLoadError."""

    def _describe(self, loaded: BaseModel, model: Model, dtype: torch.dtype, backend: str) -> None:
        """Sets the attributes that describe the model. Raises ModelLoadError: a file cannot be read."""
        self.commit = model_loading.commit_of(loaded)
        kind = self.device.partition(":")[0]  # all GPUs of a host give the same vectors
        depends_on = f"{self.commit} {dtype} {kind} {sentence_transformers.__version__}"
        try:
            self.revision = revision_of(model.path, depends_on if backend == "torch" else f"{depends_on} {backend}")
        except OSError as error:
            raise ModelLoadError(f"model {model.name} has a file that cannot be read: {one_line(error)}") from error
        self.dtype = str(dtype).removeprefix("torch.")
        self.pooling = model_loading.pooling_of(loaded)
        self.max_input_tokens = 0 if self._tokenizer is None else self._tokenizer.max_tokens or 0
        prompts = Prompts(loaded)
        self.prompts, self.empty_prompts = prompts.names, prompts.empty
        if self._shown_tokenizer is None:
            self.ops -= frozenset(TOKENIZER_OPS)

    def _create_runner(self, loaded: BaseModel, options: EngineOptions, cores: int) -> SentenceRunner:
        threads = max(1, cores // self.runners)
        max_text_tokens = self.max_input_tokens or self.max_batch_tokens
        max_batch_tokens = options.max_batch_tokens or self.max_batch_tokens
        self._shapes: list[tuple[int, int]] = []
        if options.compile and self.runs_sequentially and self._uses_buckets(options):
            self._shapes = list(buckets.shapes(options.max_batch_size, max_batch_tokens, max_text_tokens))
        return self.runner_class(
            loaded,
            self._tokenizer,
            normalizes=self.normalizes,
            # torch compiles for a fixed number of threads: one number is enough.
            threads={True: threads if options.compile else cores, False: threads},
            bucket_tokens=max_text_tokens if self._uses_buckets(options) else None,
            max_tokens=max(max_batch_tokens, max_text_tokens),
        )

    def _uses_buckets(self, options: EngineOptions) -> bool:
        has_graphs = options.compile and self.runs_sequentially
        return options.shape_buckets == "on" or (options.shape_buckets == "auto" and has_graphs)

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> Sequence[Encoded]:
        """Returns token ids with the model's special tokens, cut to its maximum length.

        Raises:
            InputRefusedError: see gpuworker.backends.base.
        """
        return self._require_tokenizer().tokenize(inputs, options)

    def collate(self, inputs: Sequence[Any]) -> Any:  # noqa: ANN401 - tensors by name, or texts
        """Returns padded or packed tensors on the device, or the texts."""
        return self._runner.collate(inputs)

    def run(self, batch: Any, op: str = EMBED, *, exclusive: bool, raw: bool = False) -> Vector | list[Vector]:  # noqa: ANN401
        """Returns the outputs of the model for a batch. Raises InputRefusedError: see gpuworker.backends.base."""
        return self._runner.run(batch, op, exclusive=exclusive, raw=raw)

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:
        """Returns the tokens of each text. Raises InputRefusedError: see gpuworker.backends.base."""
        return self._require_tokenizer().show_tokens(inputs, options)

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:
        """Returns the text that each input's token ids make. Raises InputRefusedError: see gpuworker.backends.base."""
        return self._require_tokenizer().decode(inputs, options)

    @property
    def _shown_tokenizer(self) -> ModelTokenizer | None:
        """The tokenizer of `show_tokens` and `decode`; None if that of the model is internal to it."""
        return self._tokenizer

    def _require_tokenizer(self) -> ModelTokenizer:
        if self._shown_tokenizer is None:
            raise UnsupportedError("The tokenizer of this model is internal to it: it shows no tokens.")
        return self._shown_tokenizer

    def busy_s(self) -> float:
        """Returns how long a GPU has computed since the last call, by its own clock; 0 for other devices."""
        return self._runner.transfer.busy_s()

    def free_memory(self) -> None:
        """Has torch free the GPU memory that it keeps."""
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()

    def warmup(self) -> None:
        """Runs one short and one longer batch: the first ones allocate memory and choose kernels.

        Each shape that is to become a CUDA graph runs as often as that takes.
        """
        words = "the quick brown fox jumps over the lazy dog "
        for repeats, number in ((1, 1), (3, 8)):
            inputs = self.tokenize([words * repeats] * number, self._runner.probe_options)
            self.run(self.collate(inputs), exclusive=False)
        try:
            for texts, tokens in self._shapes:
                for _ in range(RUNS_TO_REPLAY):
                    self.run(self.collate([TokenizedInput([0] * tokens)] * texts), exclusive=False)
        except torch.OutOfMemoryError:
            log.warning("no memory for CUDA graphs of all shapes: the others are recorded when they are needed")
            self.free_memory()
        self.busy_s()  # the warm-up is no work of a batch


def num_runners(options: EngineOptions, device: str, cores: int) -> int:
    """Returns how many batches run at once: on a CPU one for each core, up to MAX_RUNNERS; elsewhere one.

    A GPU computes one batch after the other, and what limits a small model is Python, which submits its kernels: two
    threads that do so delay each other. The preparer collates and copies the next batch meanwhile.

    Raises:
        ModelLoadError: a compiled model on a GPU is to run several.
    """
    if device == "cpu":
        cores_each = -(-cores // MAX_RUNNERS)
        return options.runners or cores // cores_each
    runners = options.runners or 1
    if options.compile and runners > 1:
        raise ModelLoadError(
            "--compile on a GPU runs one batch at a time, since the next overwrites it: leave out --runners"
        )
    return runners
