"""The embedder without a network: near is near, nothing is NaN, and a query does not wait for a batch."""

import asyncio
import hashlib
import time
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.providers.base import ProviderMisconfigured
from app.providers.local import (
    DIMENSIONS,
    MAX_TOKENS,
    TEXTS_PER_RUN,
    TOKENS_PER_RUN,
    VOCABULARY,
    LocalEmbedder,
    _verified,  # pyright: ignore[reportPrivateUsage]
    plan_runs,
)

pytestmark = pytest.mark.anyio

PUBLISHED = [0.02005, 0.03618, -0.02058, -0.0792, -0.15231, 0.01323]

TEXTS = [
    "A man is playing a guitar on the stage.",
    "Someone performs music with a stringed instrument.",
    "The quarterly budget was approved on Thursday.",
    "Ana moved from Berlin to Lisbon in 2021 and works as a nurse there now; her brother still lives in Berlin.",
    "Wer hat gestern angerufen?",
    "你好，世界",
    "x",
]


async def test_similar_sentences_are_nearer_than_others(local: LocalEmbedder) -> None:
    vectors = await local.embed(TEXTS)
    near, far = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert vectors.shape == (len(TEXTS), DIMENSIONS)
    assert vectors.dtype == np.float32
    assert near > 0.5 > 0.2 > far


async def test_it_is_the_model_it_says_it_is(local: LocalEmbedder) -> None:
    """Against the vector of the published float32 weights."""
    (vector,) = await local.embed(["A man is playing a guitar on the stage."])
    assert vector[:6] == pytest.approx(PUBLISHED, abs=5e-3)


async def test_a_text_has_the_same_vector_alone_and_in_a_batch(local: LocalEmbedder) -> None:
    together = await local.embed(TEXTS)
    for text, row in zip(TEXTS, together, strict=True):
        (alone,) = await local.embed([text])
        (asked,) = await local.embed([text], query=True)
        assert np.array_equal(alone, asked)
        assert np.abs(alone - row).max() < 1e-5


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\x00", "\u200b", "😀", "[SEP]", "w" * 5_000, " " * 100_000])
async def test_every_text_has_a_direction(local: LocalEmbedder, text: str) -> None:
    (vector,) = await local.embed([text])
    assert np.isfinite(vector).all()
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


async def test_a_very_long_text_counts_for_its_beginning(local: LocalEmbedder) -> None:
    words = "the garden behind the house has an old pear tree " * 100_000
    started = time.monotonic()
    long, cut = await local.embed([words, " ".join(words.split(" ", MAX_TOKENS - 2)[: MAX_TOKENS - 2])])
    assert time.monotonic() - started < 5
    assert np.abs(long - cut).max() < 1e-5


async def test_a_text_that_spells_a_mark_of_the_model_is_only_text(local: LocalEmbedder) -> None:
    marked, plain = await local.embed(["[SEP]", "( SEP )"])
    assert not np.allclose(marked, (await local.embed([""]))[0], atol=1e-3)
    assert marked @ plain > 0.5


async def test_nothing_is_embedded_into_nothing(local: LocalEmbedder) -> None:
    assert (await local.embed([])).shape == (0, DIMENSIONS)


async def test_queries_are_answered_while_a_batch_is_running(local: LocalEmbedder) -> None:
    bulk = asyncio.create_task(local.embed([TEXTS[3]] * 400))
    await asyncio.sleep(0.05)
    answers = await asyncio.gather(*(local.embed([f"who is number {i}?"], query=True) for i in range(20)))
    assert not bulk.done()
    assert len({answer.tobytes() for answer in answers}) == 20
    bulk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bulk


async def test_the_event_loop_goes_on_meanwhile(local: LocalEmbedder) -> None:
    bulk = asyncio.create_task(local.embed([TEXTS[3]] * 60))
    turns = 0
    while not bulk.done():
        await asyncio.sleep(0.001)
        turns += 1
    # Were the work done in the loop, it would turn about once for each of the four runs.
    assert turns > 20


async def test_the_first_calls_load_it_once() -> None:
    embedder = LocalEmbedder()
    try:
        first, second = await asyncio.gather(embedder.embed(["x"]), embedder.embed(["x"], query=True))
    finally:
        await embedder.aclose()
    assert np.array_equal(first, second)


async def test_weights_that_were_changed_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    changed = tmp_path_factory.mktemp("weights") / "model.onnx"
    changed.write_bytes(b"something else")
    with pytest.raises(ProviderMisconfigured, match="wrong checksum"):
        _verified(changed)


async def test_the_vocabulary_is_the_published_one() -> None:
    content = files("app.providers").joinpath(VOCABULARY).read_bytes()
    assert hashlib.sha256(content).hexdigest() == "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"


@given(st.lists(st.integers(2, MAX_TOKENS), max_size=200))
def test_runs_hold_every_text_once_and_stay_small(lengths: list[int]) -> None:
    runs = plan_runs(lengths)
    assert sorted(index for run in runs for index in run) == list(range(len(lengths)))
    for run in runs:
        assert len(run) <= TEXTS_PER_RUN
        assert len(run) * max(lengths[index] for index in run) <= TOKENS_PER_RUN
