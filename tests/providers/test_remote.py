"""Models behind HTTP: asked in each provider's own words, and not trusted in any of their numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.providers.base import (
    Embedder,
    InputRefused,
    Message,
    ProviderMisconfigured,
    UnusableResponse,
)
from app.providers.build import (
    ModelSpec,
    ProviderSettings,
    build_completer,
    build_embedder,
    build_reranker,
    parse_model,
)
from tests.providers.loopback import Answer, Asked, Loopback, in_turn, listening

pytestmark = pytest.mark.anyio


def at(server: Loopback, spec: str) -> Embedder:
    embedder = build_embedder(parse_model(spec), settings(server))
    assert embedder is not None
    return embedder


def settings(server: Loopback) -> ProviderSettings:
    return ProviderSettings(
        ollama_url=server.url,
        openai_base_url=f"{server.url}/v1",
        openai_api_key="sk-1",
        voyage_base_url=f"{server.url}/v1",
        voyage_api_key="pa-1",
        timeout_seconds=5,
    )


def vector_of(text: str, dimensions: int) -> list[float]:
    """Long, and different for each length of text."""
    vector = [0.0] * dimensions
    vector[len(text) % dimensions] = 7.0
    return vector


def ollama(dimensions: int = 768) -> Callable[[Asked], Answer]:
    return lambda asked: Answer({"embeddings": [vector_of(text, dimensions) for text in asked.body["input"]]})


def listed(dimensions: int) -> Callable[[Asked], Answer]:
    """Answers as OpenAI and Voyage do, last text first."""

    def answer(asked: Asked) -> Answer:
        items = [{"index": i, "embedding": vector_of(t, dimensions)} for i, t in enumerate(asked.body["input"])]
        return Answer({"object": "list", "data": items[::-1], "usage": {"total_tokens": 3}})

    return answer


async def test_ollama_with_the_prefixes_of_nomic() -> None:
    async with listening(ollama()) as server:
        embedder = at(server, "ollama")
        stored = await embedder.embed(["abc", "de"])
        asked = await embedder.embed(["abc"], query=True)
        await embedder.aclose()
    assert [call.path for call in server.asked] == ["/api/embed"] * 2
    assert server.asked[0].body == {
        "model": "nomic-embed-text",
        "input": ["search_document: abc", "search_document: de"],
    }
    assert server.asked[1].body["input"] == ["search_query: abc"]
    assert (stored.shape, stored.dtype, asked.shape) == ((2, 768), np.float32, (1, 768))
    assert np.linalg.norm(stored, axis=1) == pytest.approx(1)
    assert (embedder.name, embedder.model, embedder.dimensions) == ("ollama", "nomic-embed-text", 768)


@pytest.mark.parametrize(
    ("spec", "query", "document"),
    [
        ("ollama/nomic-embed-text:v1.5@768", "search_query: x", "search_document: x"),
        ("ollama/mxbai-embed-large", "Represent this sentence for searching relevant passages: x", "x"),
        ("ollama/bge-m3", "x", "x"),
    ],
)
async def test_each_model_gets_its_prefixes(spec: str, query: str, document: str) -> None:
    async with listening(ollama(768 if "nomic" in spec else 1024)) as server:
        embedder = at(server, spec)
        await embedder.embed(["x"], query=True)
        await embedder.embed(["x"])
        await embedder.aclose()
    assert [call.body["input"] for call in server.asked] == [[query], [document]]
    assert all("dimensions" not in call.body for call in server.asked)


async def test_openai_keeps_the_order_whatever_comes_first() -> None:
    async with listening(listed(1536)) as server:
        embedder = at(server, "openai")
        vectors = await embedder.embed(["a", "bb", "ccc"])
        await embedder.aclose()
    assert vectors.argmax(axis=1).tolist() == [1, 2, 3]
    assert server.asked[0].path == "/v1/embeddings"
    assert server.asked[0].headers["authorization"] == "Bearer sk-1"
    assert server.asked[0].body["model"] == "text-embedding-3-small"
    assert "dimensions" not in server.asked[0].body


async def test_a_known_model_is_asked_for_shorter_vectors() -> None:
    async with listening(listed(512)) as server:
        embedder = at(server, "openai/text-embedding-3-small@512")
        assert (await embedder.embed(["a"])).shape == (1, 512)
        await embedder.aclose()
    assert server.asked[0].body["dimensions"] == 512


async def test_an_unknown_model_shows_its_dimensions_and_is_held_to_them() -> None:
    async with listening(in_turn(listed(256)(Asked("", {}, {"input": ["a"]})), Answer({"data": []}))) as server:
        embedder = at(server, "openai/BAAI/bge-custom")
        assert embedder.dimensions is None
        await embedder.warm()
        assert embedder.dimensions == 256
        server.answer = listed(384)
        with pytest.raises(ProviderMisconfigured) as caught:
            await embedder.embed(["a"])
        await embedder.aclose()
    assert caught.value.code == "embed_dimensionality_mismatch"
    assert caught.value.details == {"dimensions": 384, "expected": 256}


async def test_voyage_distinguishes_queries_from_documents() -> None:
    async with listening(listed(512)) as server:
        embedder = at(server, "voyage")
        await embedder.embed(["a"])
        await embedder.embed(["a"], query=True)
        await embedder.aclose()
    assert [call.body["input_type"] for call in server.asked] == ["document", "query"]
    assert server.asked[0].body["model"] == "voyage-3-lite"
    assert server.asked[0].headers["authorization"] == "Bearer pa-1"


async def test_large_batches_are_split_and_put_together_in_order() -> None:
    texts = ["x" * (i % 700 + 1) for i in range(100)]
    async with listening(ollama(1024)) as server:
        embedder = at(server, "ollama/bge-m3")
        vectors = await embedder.embed(texts)
        await embedder.aclose()
    assert [len(call.body["input"]) for call in server.asked] == [32, 32, 32, 4]
    assert vectors.argmax(axis=1).tolist() == [len(text) for text in texts]


async def test_no_texts_make_no_request() -> None:
    async with listening(ollama()) as server:
        embedder = at(server, "ollama")
        assert (await embedder.embed([])).shape == (0, 768)
        await embedder.aclose()
    assert server.asked == []


async def test_an_empty_text_does_not_spoil_its_batch() -> None:
    async with listening(listed(1536)) as server:
        embedder = at(server, "openai")
        assert np.isfinite(await embedder.embed(["", "text", " \n"])).all()
        await embedder.aclose()
    assert server.asked[0].body["input"] == [".", "text", "."]


BROKEN_VECTORS: list[list[list[Any]]] = [
    [[1.0] * 768],
    [[1.0] * 768] * 3,
    [],
    [[1.0] * 768, [1.0] * 767],
    [[1.0] * 768, [1.0] * 767 + [float("nan")]],
    [[1.0] * 768, [1.0] * 767 + [float("inf")]],
    [[1.0] * 768, [1.0] * 767 + [None]],
    [[1.0] * 768, [1.0] * 767 + ["1"]],
    [[1.0] * 768, [0.0] * 768],
]


@pytest.mark.parametrize("vectors", BROKEN_VECTORS)
async def test_numbers_that_cannot_be_trusted_are_unusable(vectors: list[list[Any]]) -> None:
    async with listening(in_turn(Answer({"embeddings": vectors}))) as server:
        embedder = at(server, "ollama")
        with pytest.raises(UnusableResponse):
            await embedder.embed(["a", "b"])
        await embedder.aclose()


@pytest.mark.parametrize("indexes", [[0, 0], [0, 2], [1, 2], [-1, 0], [0]])
async def test_vectors_numbered_wrongly_are_unusable(indexes: list[int]) -> None:
    data = [{"index": index, "embedding": [1.0] * 1536} for index in indexes]
    async with listening(in_turn(Answer({"data": data}))) as server:
        embedder = at(server, "openai")
        with pytest.raises(UnusableResponse):
            await embedder.embed(["a", "b"])
        await embedder.aclose()


@pytest.mark.parametrize("size", [1e300, 1e-300, 1e40])
async def test_vectors_of_any_size_come_out_at_length_one(size: float) -> None:
    async with listening(in_turn(Answer({"embeddings": [[size] * 768]}))) as server:
        embedder = at(server, "ollama")
        assert np.linalg.norm(await embedder.embed(["a"])) == pytest.approx(1)
        await embedder.aclose()


@pytest.mark.parametrize(
    ("spec", "dimensions", "code"),
    [
        ("ollama", 512, "embed_dimensionality_mismatch"),
        ("ollama/unheard-of", 63, "embed_dimensions_below_floor"),
        ("ollama/unheard-of@100", 63, "embed_dimensionality_mismatch"),
    ],
)
async def test_vectors_of_the_wrong_length_are_a_wrong_setting(spec: str, dimensions: int, code: str) -> None:
    async with listening(ollama(dimensions)) as server:
        embedder = at(server, spec)
        with pytest.raises(ProviderMisconfigured) as caught:
            await embedder.warm()
        await embedder.aclose()
    assert caught.value.code == code


async def test_a_refused_batch_can_be_split_by_its_caller() -> None:
    def answer(asked: Asked) -> Answer:
        return Answer(status=400) if "bad" in asked.body["input"] else listed(1536)(asked)

    async with listening(answer) as server:
        embedder = at(server, "openai")
        with pytest.raises(InputRefused):
            await embedder.embed(["good", "bad"])
        assert (await embedder.embed(["good"])).shape == (1, 1536)
        await embedder.aclose()


MESSAGES = [Message(role="system", content="be brief"), Message(role="user", content="hello")]
SENT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
SCHEMA = {"type": "object"}


async def test_a_completion_of_openai() -> None:
    choice = {"message": {"content": "{}"}, "finish_reason": "length"}
    told = {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    async with listening(in_turn(Answer(told))) as server:
        completer = build_completer(parse_model("openai/qwen"), settings(server))
        assert completer is not None
        completion = await completer.complete(MESSAGES, max_tokens=10, json_schema=SCHEMA)
        await completer.aclose()
    assert (completion.text, completion.truncated) == ("{}", True)
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (5, 2)
    assert server.asked[0].path == "/v1/chat/completions"
    assert server.asked[0].body == {
        "model": "qwen",
        "messages": SENT,
        "max_tokens": 10,
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
    }


async def test_a_completion_of_ollama() -> None:
    told = {"response": "hi", "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2}
    async with listening(in_turn(Answer(told))) as server:
        completer = build_completer(parse_model("ollama/llama3.2:1b"), settings(server))
        assert completer is not None
        completion = await completer.complete(MESSAGES, max_tokens=10, temperature=None, json_schema=SCHEMA)
        await completer.aclose()
    assert (completion.text, completion.truncated, completion.usage.output_tokens) == ("hi", False, 2)
    assert server.asked[0].path == "/api/generate"
    assert server.asked[0].body == {
        "model": "llama3.2:1b",
        "system": "be brief",
        "prompt": "hello",
        "think": False,
        "stream": False,
        "format": SCHEMA,
        "options": {"num_predict": 10},
    }


@pytest.mark.parametrize("told", [{"choices": []}, {"choices": [{"message": {"content": None}}]}])
async def test_a_completion_without_text_is_unusable(told: object) -> None:
    async with listening(in_turn(Answer(told))) as server:
        completer = build_completer(parse_model("openai/qwen"), settings(server))
        assert completer is not None
        with pytest.raises(UnusableResponse):
            await completer.complete(MESSAGES, max_tokens=10)
        await completer.aclose()


@pytest.mark.parametrize(("spec", "word"), [("voyage/rerank-2-lite", "data"), ("openai/bge-reranker", "results")])
async def test_scores_come_back_in_the_order_of_the_texts(spec: str, word: str) -> None:
    scored = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.2}]
    async with listening(in_turn(Answer({word: scored}))) as server:
        reranker = build_reranker(parse_model(spec), settings(server))
        assert reranker is not None
        assert await reranker.rerank("who", ["a", "b"]) == [0.2, 0.9]
        with pytest.raises(UnusableResponse):
            await reranker.rerank("who", ["a", "b", "c"])
        assert await reranker.rerank("who", []) == []
        await reranker.aclose()
    assert server.asked[0].path == "/v1/rerank"
    assert server.asked[0].body == {"model": spec.partition("/")[2], "query": "who", "documents": ["a", "b"]}


async def test_the_keys_are_not_shown() -> None:
    shown = repr(ProviderSettings(openai_api_key="sk-shown", voyage_api_key="pa-shown"))
    assert "shown" not in shown


@pytest.mark.parametrize("provider", ["openai", "voyage"])
async def test_a_hosted_provider_needs_its_key(provider: str) -> None:
    with pytest.raises(ProviderMisconfigured, match="needs an API key"):
        build_embedder(parse_model(provider), ProviderSettings())


async def test_a_self_hosted_server_needs_no_key() -> None:
    embedder = build_embedder(parse_model("openai"), ProviderSettings(openai_base_url="http://127.0.0.1:9/v1"))
    assert embedder is not None
    await embedder.aclose()


@pytest.mark.parametrize(
    ("raw", "spec"),
    [
        ("none", ModelSpec(provider="none")),
        ("local", ModelSpec(provider="local")),
        (" local/all-MiniLM-L6-v2@384 ", ModelSpec(provider="local", model="all-MiniLM-L6-v2", dimensions=384)),
        ("ollama/hf.co/org/model:Q4_K_M", ModelSpec(provider="ollama", model="hf.co/org/model:Q4_K_M")),
        ("voyage/voyage-3.5@256", ModelSpec(provider="voyage", model="voyage-3.5", dimensions=256)),
    ],
)
async def test_a_model_is_read_and_written_alike(raw: str, spec: ModelSpec) -> None:
    assert parse_model(raw) == spec
    assert parse_model(str(spec)) == spec


@pytest.mark.parametrize(
    "raw", ["", "fake", "static", "Local", "ollama/", "openai/a b", "openai/a@", "local/other", "none/x", "/x", "@64"]
)
async def test_what_names_no_model_is_refused(raw: str) -> None:
    with pytest.raises(ValueError, match=r"expected one of|has one model|has no model"):
        parse_model(raw)


async def test_none_means_no_provider() -> None:
    spec, nothing = parse_model("none"), ProviderSettings()
    assert build_embedder(spec, nothing) is None
    assert build_completer(spec, nothing) is None
    assert build_reranker(spec, nothing) is None


@pytest.mark.parametrize("raw", ["local", "voyage/x", "openai", "ollama"])
async def test_not_every_provider_writes(raw: str) -> None:
    with pytest.raises(ProviderMisconfigured, match="cannot complete"):
        build_completer(parse_model(raw), ProviderSettings(openai_api_key="k", voyage_api_key="k"))


@pytest.mark.parametrize(
    ("raw", "code"),
    [("local@256", "embed_dimensionality_mismatch"), ("ollama/x@32", "embed_dimensions_below_floor")],
)
async def test_dimensions_that_cannot_be_are_found_when_building(raw: str, code: str) -> None:
    with pytest.raises(ProviderMisconfigured) as caught:
        build_embedder(parse_model(raw), ProviderSettings())
    assert caught.value.code == code
