"""The fakes keep the promises of the Protocols, so that what passes with them means something."""

import numpy as np
import pytest

from app.providers.base import Completer, Embedder, InputRefused, Message, ProviderDown, Reranker
from app.providers.fake import FakeCompleter, FakeEmbedder, FakeReranker

pytestmark = pytest.mark.anyio


async def test_texts_that_share_words_are_near() -> None:
    fake = FakeEmbedder(256)
    embedder: Embedder = fake
    vectors = await embedder.embed(["the red house", "the RED house!", "a blue sea", ""])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    assert vectors[0] @ vectors[1] == pytest.approx(1)
    assert vectors[0] @ vectors[2] < 0.5
    assert np.array_equal(vectors, await FakeEmbedder(256).embed(fake.calls[0]))
    assert (await embedder.embed([])).shape == (0, 256)


async def test_it_fails_on_demand() -> None:
    fake = FakeEmbedder()
    fake.problem = ProviderDown("off")
    with pytest.raises(ProviderDown):
        await fake.embed(["a"])
    fake.problem = None
    fake.refuses = lambda text: InputRefused("no") if text == "poison" else None
    with pytest.raises(InputRefused):
        await fake.embed(["a", "poison"])
    assert (await fake.embed(["a"])).shape == (1, 64)


async def test_a_script_answers() -> None:
    completer: Completer = FakeCompleter(lambda messages: messages[-1].content.upper())
    completion = await completer.complete([Message(role="user", content="one two three")], max_tokens=2)
    assert (completion.text, completion.truncated, completion.usage.output_tokens) == ("ONE TWO", True, 2)


async def test_words_in_common_rank_first() -> None:
    reranker: Reranker = FakeReranker()
    scores = await reranker.rerank("red house", ["a blue sea", "the red house"])
    assert scores[1] > scores[0]
