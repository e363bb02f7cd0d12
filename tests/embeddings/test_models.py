"""Models side by side: added, filled, activated, switched back, dropped; on the command line, as an operator does."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from app.embeddings.models import ActiveModel, check_active, check_models, list_models
from app.errors import StartupError
from app.providers.fake import FakeEmbedder
from tests.conftest import TestDatabase, as_url
from tests.embeddings.conftest import Bench
from tests.providers.loopback import Answer, Asked, listening
from tests.service import palimpsest

pytestmark = pytest.mark.anyio

Run = Callable[..., Any]


@asynccontextmanager
async def provider(dimensions: int = 64) -> AsyncIterator[dict[str, str]]:
    """A server that speaks OpenAI's API, and the settings that lead to it."""
    fake = FakeEmbedder(max(64, dimensions), max_batch=1000)

    def answer(asked: Asked) -> Answer:
        # The fake never waits, so one step brings it to its end.
        try:
            fake.embed(asked.body["input"]).send(None)
            vectors: Any = []
        except StopIteration as done:
            vectors = done.value
        data = [
            {"index": i, "embedding": [float(x) or 0.001 for x in row[:dimensions]]} for i, row in enumerate(vectors)
        ]
        return Answer({"data": data})

    async with listening(answer) as server:
        yield {"OPENAI_BASE_URL": f"{server.url}/v1"}


@pytest.fixture
def run(bench: Bench) -> Run:
    async def command(*arguments: str, code: int = 0, **variables: str) -> Any:
        environment = {
            "DATABASE_URL": bench.database.url("app"),
            "DATABASE_MIGRATION_URL": bench.database.url("superuser"),
            **variables,
        }
        ended = await asyncio.to_thread(palimpsest, "embeddings", *arguments, "--json", **environment)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return json.loads(ended.stdout)

    return command


async def test_a_new_model_is_filled_beside_the_old_switched_to_and_back(bench: Bench, run: Run) -> None:
    await bench.notes(*(f"note {number}" for number in range(10)), scope="agent_private")
    await bench.fact("Alice", "likes", "tea")
    await bench.embed_all()
    bench.fakes["test-model"] = FakeEmbedder(64, model="test-model", max_batch=1000)
    async with provider() as settings:
        made = await run("add", "openai/test-model", **settings)
        assert (made["model_id"], made["dimensions"], made["created"]) == (2, 64, True)
        again = await run("add", "openai/test-model", **settings)
        assert again == {**made, "created": False}
        first, second = (await run("status"))["models"]
        assert (first["model"], first["active"], first["coverage"], first["pending"]) == ("fake/words", True, 1.0, 0)
        assert (second["model"], second["active"], second["units"], second["vectors"]) == (
            "openai/test-model",
            False,
            11,
            0,
        )
        assert (second["coverage"], second["pending"], second["failed"]) == (0.0, 11, 0)
        assert second["oldest_pending_seconds"] >= 0
        refused = await run("activate", "openai/test-model", code=1)
        assert refused["error"]["code"] == "embedding_coverage_low"
        assert refused["error"]["details"] == {"coverage": 0.0, "minimum": 0.95}
        await bench.embed_all()
        assert len(bench.vectors) == 22
        active = ActiveModel(seconds=0.0)
        assert (await active(bench.db)).name == "fake/words"  # type: ignore[union-attr]
        assert (await run("activate", "openai/test-model"))["coverage"] == 1.0
        assert (await active(bench.db)).name == "openai/test-model"  # type: ignore[union-attr]
        await bench.notes("written to both")
        await bench.embed_all()
        assert {
            row["model_id"]: row["n"] for row in bench.rows("SELECT model_id, count(*) n FROM embeddings GROUP BY 1")
        } == {
            1: 12,
            2: 12,
        }
        await run("activate", "1")
        assert (await active(bench.db)).model_id == 1  # type: ignore[union-attr]
        assert (await run("drop", "1", code=1))["error"]["code"] == "embedding_model_active"
        dropped = await run("drop", "openai/test-model")
        assert dropped["vectors"] == 12
    assert {row["model_id"] for row in bench.vectors} == {1}
    assert bench.rows("SELECT * FROM embedding_counts WHERE model_id = 2") == []
    assert bench.rows("SELECT relname FROM pg_class WHERE relname ~ '_2_(note|fact)_idx$'") == []
    assert [model.model_id for model in await list_models(bench.db)] == [1]


async def test_the_indexes_of_a_new_model_are_used(bench: Bench, run: Run) -> None:
    async with provider() as settings:
        await run("add", "openai/test-model", **settings)
    bench.superuser.execute("SET enable_seqscan = off")
    for kind in ("note", "fact"):
        name = f"embeddings_2_{kind}_idx"
        assert bench.one(f"SELECT indisvalid FROM pg_index WHERE indexrelid = '{name}'::regclass") is True
        assert bench.one(f"SELECT count(*) FROM pg_inherits WHERE inhparent = '{name}'::regclass") == 8
        plan = bench.rows(
            "EXPLAIN SELECT owner_id FROM embeddings "
            f"WHERE tenant_id = 'acme' AND model_id = 2 AND owner_kind = '{kind}' "
            "ORDER BY (vector::halfvec(64)) <#> array_fill(0.1, ARRAY[64])::vector(64)::halfvec(64) LIMIT 5"
        )
        assert f"_2_{kind}_idx" in str(plan)
    bench.superuser.execute("RESET enable_seqscan")


async def test_a_number_used_again_after_half_a_drop_has_indexes_of_the_right_length(bench: Bench, run: Run) -> None:
    await bench.notes("first", "second")
    await bench.fact("Alice", "likes", "tea")
    async with provider(64) as settings:
        await run("add", "openai/test-model", **settings)
    bench.fakes["test-model"] = FakeEmbedder(64, model="test-model", max_batch=1000)
    await bench.embed_all()
    # As a drop leaves it that ends after its first step.
    bench.superuser.execute("DELETE FROM embedding_models WHERE model_id = 2")
    bench.fakes["longer"] = FakeEmbedder(128, model="longer", max_batch=1000)
    async with provider(128) as settings:
        made = await run("add", "openai/longer", **settings)
    assert (made["model_id"], made["dimensions"]) == (2, 128)
    found = bench.rows("SELECT indexdef FROM pg_indexes WHERE indexname ~ '_2_(note|fact)_idx$'")
    assert len(found) == 2 * 9
    assert all("halfvec(128)" in row["indexdef"] for row in found)
    assert bench.rows("SELECT * FROM embedding_counts WHERE model_id = 2 AND vectors > 0") == []
    await bench.embed_all()
    lengths = bench.rows("SELECT vector_dims(vector) AS n FROM embeddings WHERE model_id = 2")
    assert [row["n"] for row in lengths] == [128] * 3
    assert bench.one("SELECT sum(vectors) FROM embedding_counts WHERE model_id = 2") == 3
    names = "SELECT oid FROM pg_class WHERE relname ~ '_2_(note|fact)_idx$' ORDER BY oid"
    before = bench.rows(names)
    async with provider(128) as settings:
        await run("add", "openai/longer", **settings)
    assert bench.rows(names) == before, "good ones are kept"


async def test_another_version_of_the_same_model_is_another_model(bench: Bench, run: Run) -> None:
    async with provider() as settings:
        await run("add", "openai/test-model", **settings)
        made = await run("add", "openai/test-model", "--model-version", "2", **settings)
        assert made == {"model_id": 3, "model": "openai/test-model v2", "dimensions": 64, "created": True}
        ambiguous = await run("activate", "openai/test-model", "--force", code=2)
        assert "--model-version" in ambiguous["error"]["message"]
        assert (await run("activate", "openai/test-model", "--model-version", "2", "--force"))["model_id"] == 3


@pytest.mark.parametrize(
    ("model", "dimensions", "code"),
    [
        ("openai/test-model@128", 64, "embed_dimensionality_mismatch"),
        ("openai/test-model", 32, "embed_dimensions_below_floor"),
        ("openai/test-model@32", 32, "embed_dimensions_below_floor"),
        ("openai/test-model", 3072, "embed_dimensions_above_ceiling"),
        ("local@768", 0, "embed_dimensionality_mismatch"),
        ("openai/text-embedding-3-large@3072", 0, "embed_dimensions_above_ceiling"),
    ],
)
async def test_dimensions_that_cannot_be_are_refused(
    bench: Bench, run: Run, model: str, dimensions: int, code: str
) -> None:
    async with provider(dimensions) as settings:
        refused = await run("add", model, code=1, **settings)
    assert refused["error"]["code"] == code
    assert len(await list_models(bench.db)) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["add", "nobody/knows"], 2, "MODEL"),
        (["add", "none"], 2, "none"),
        (["add", "openai/x", "--model-version", "0"], 2, "--model-version"),
        (["add", "ollama/x", "--model-version", "99999999999"], 2, "--model-version: from 1 to 2147483647"),
        (["activate", "openai/absent"], 1, "embeddings status"),
        (["drop", "17"], 1, "embeddings status"),
    ],
)
async def test_mistakes_are_named(run: Run, arguments: list[str], code: int, words: str) -> None:
    assert words in (await run(*arguments, code=code))["error"]["message"]


async def test_a_provider_that_does_not_answer_adds_no_model(bench: Bench, run: Run) -> None:
    refused = await run("add", "openai/test-model", code=1, OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert refused["error"]["code"] == "provider_down"
    assert len(await list_models(bench.db)) == 1


async def test_without_an_active_model_there_is_none(bench: Bench, run: Run) -> None:
    await bench.notes("note")
    assert (await run("activate", "none"))["model"] == "none"
    active = ActiveModel()
    assert await active(bench.db) is None
    await bench.embed_all()
    assert len(bench.vectors) == 1, "it stays filled, and can be activated again"
    await run("drop", "fake/words", code=2)
    await run("drop", "1")
    assert bench.vectors == []
    await bench.notes("another")
    assert bench.queue == []
    assert (await run("status"))["models"] == []


async def test_vectors_of_a_model_that_was_dropped_meanwhile_are_not_stored(bench: Bench, run: Run) -> None:
    from tests.embeddings.test_worker import Pausing

    bench.fakes["words"] = slow = Pausing()
    await bench.notes("note")
    async with bench.working():
        await slow.asked.wait()
        await run("activate", "none")
        await run("drop", "1")
        async with provider() as settings:
            await run("add", "openai/test-model", **settings)
        slow.go_on.set()
        await bench.until(
            lambda: all(job["status"] != "leased" for job in bench.jobs if job["payload"] == {"model": 1})
        )
    assert bench.vectors == [], "not even under the number that another has now"


async def test_the_active_model_is_remembered_for_a_moment(bench: Bench) -> None:
    remembered, forgotten = ActiveModel(seconds=60), ActiveModel(seconds=0.1)
    for active in (remembered, forgotten):
        assert (await active(bench.db)).model_id == 1  # type: ignore[union-attr]
    bench.superuser.execute("UPDATE embedding_models SET active = false")
    await asyncio.sleep(0.15)
    assert (await remembered(bench.db)) is not None
    assert (await forgotten(bench.db)) is None


async def test_a_setting_that_differs_is_told_with_the_commands(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    await check_models(bench.db, bench.database.settings(embedding_model="ollama/nomic-embed-text"))
    told = capsys.readouterr().out
    assert "embedding_model_differs" in told
    assert "palimpsest embeddings activate ollama/nomic-embed-text" in told
    await check_models(bench.db, bench.database.settings(embedding_model="none"))
    assert "embedding_model_differs" in capsys.readouterr().out
    await check_models(bench.db, bench.database.settings(embedding_dimensions=64))
    assert capsys.readouterr().out == ""


IMPOSSIBLE = [
    ("local@512", "embed_dimensionality_mismatch"),
    ("openai/text-embedding-3-small@32", "embed_dimensions_below_floor"),
    ("openai/anything@0", "embed_dimensions_below_floor"),
    ("ollama/anything@2001", "embed_dimensions_above_ceiling"),
    ("openai/text-embedding-3-large", "embed_dimensions_above_ceiling"),
]


@pytest.mark.parametrize(("model", "code"), IMPOSSIBLE)
async def test_a_model_that_cannot_be_refuses_to_start(bench: Bench, model: str, code: str) -> None:
    with pytest.raises(StartupError, match=r"EMBEDDING_MODEL: .* after @") as refused:
        await check_models(bench.db, bench.database.settings(embedding_model=model))
    assert refused.value.code == code


@pytest.mark.parametrize(
    "settings",
    [
        {"embedding_model": "local@384"},
        {"embedding_model": "openai/text-embedding-3-large@1024"},
        {"embedding_model": "openai/text-embedding-3-large", "embedding_dimensions": 64},
        {"embedding_model": "local", "embedding_dimensions": 64},
        {"embedding_model": "ollama/anything"},
    ],
)
async def test_one_that_can_be_does_not(bench: Bench, settings: dict[str, Any]) -> None:
    await check_models(bench.db, bench.database.settings(**settings))


@pytest.mark.parametrize("command", ["serve", "worker"])
async def test_serve_and_worker_say_that_a_model_cannot_be(bench: Bench, command: str) -> None:
    variables = {"DATABASE_URL": bench.database.url("app"), "EMBEDDING_MODEL": "local@512"}
    ended = await asyncio.to_thread(palimpsest, command, **variables)
    assert ended.returncode == 1
    assert "EMBEDDING_MODEL: local@512 makes vectors of 384 dimensions" in ended.stderr


def switch_to_remote(bench: Bench) -> None:
    bench.superuser.execute("UPDATE embedding_models SET provider = 'openai', model = 'test-model'")


async def test_an_active_model_that_answers_with_another_length_refuses_to_start(bench: Bench) -> None:
    switch_to_remote(bench)
    async with provider(128) as settings:
        with pytest.raises(StartupError, match=r"128 dimensions where 64 are expected.*OPENAI_BASE_URL") as refused:
            await check_active(bench.db, bench.database.settings(openai_base_url=settings["OPENAI_BASE_URL"]))
        assert refused.value.code == "embed_dimensionality_mismatch"
        ended = await asyncio.to_thread(palimpsest, "worker", DATABASE_URL=bench.database.url("app"), **settings)
        assert ended.returncode == 1
        assert "embeddings activate none" in ended.stderr
    async with provider(64) as settings:
        await check_active(bench.db, bench.database.settings(openai_base_url=settings["OPENAI_BASE_URL"]))


@pytest.mark.parametrize(
    "answer",
    [
        Answer({"error": "loading"}, status=503, headers={"retry-after": "60"}),
        Answer({"error": "key"}, status=401),
        Answer({"error": "model"}, status=404),
        Answer(raw=b"<html>"),
        Answer({"data": []}),
        Answer({"data": []}, delay=20.0),
    ],
    ids=["down", "key", "model", "no JSON", "nothing", "slow"],
)
async def test_a_provider_that_is_not_well_keeps_nobody_from_starting(
    bench: Bench, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    switch_to_remote(bench)
    started = time.monotonic()
    async with listening(lambda _: answer) as server:
        await check_active(bench.db, bench.database.settings(openai_base_url=f"{server.url}/v1"))
        assert time.monotonic() - started < 6
        assert len(server.asked) == 1
    assert "embedding_model_not_checked" in capsys.readouterr().out
    await check_active(bench.db, bench.database.settings(openai_base_url="http://127.0.0.1:9/v1"))


def models_of(conninfo: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(conninfo) as connection:
        return connection.execute(
            "SELECT provider, model, dimensions, active FROM embedding_models ORDER BY model_id"
        ).fetchall()


async def test_a_fresh_installation_starts_with_the_model_that_was_configured(empty_database: str) -> None:
    def migrate(**variables: str) -> str:
        ended = palimpsest("migrate", DATABASE_MIGRATION_URL=as_url(empty_database), **variables)
        assert ended.returncode == 0, ended.stderr
        return ended.stderr

    said = migrate(EMBEDDING_MODEL="ollama/nomic-embed-text")
    assert "ollama/nomic-embed-text" in said
    assert models_of(empty_database) == [("ollama", "nomic-embed-text", 768, True)], "and nobody had to answer for it"
    migrate(EMBEDDING_MODEL="openai/anything@512")
    assert models_of(empty_database) == [("openai", "anything", 512, True)]
    migrate(EMBEDDING_MODEL="none")
    assert models_of(empty_database) == []
    migrate(EMBEDDING_MODEL="local")
    assert models_of(empty_database) == [("local", "all-MiniLM-L6-v2", 384, True)]
    migrate()
    assert models_of(empty_database) == [("local", "all-MiniLM-L6-v2", 384, True)]


async def test_an_unknown_length_and_nobody_to_ask_is_said(empty_database: str) -> None:
    ended = palimpsest(
        "migrate",
        DATABASE_MIGRATION_URL=as_url(empty_database),
        EMBEDDING_MODEL="openai/anything",
        OPENAI_BASE_URL="http://127.0.0.1:9/v1",
    )
    assert ended.returncode == 1
    assert "@768" in ended.stderr
    ended = palimpsest("migrate", DATABASE_MIGRATION_URL=as_url(empty_database), EMBEDDING_MODEL="some nonsense")
    assert ended.returncode == 2
    assert "EMBEDDING_MODEL" in ended.stderr


async def test_once_there_are_vectors_the_setting_replaces_nothing(bench: Bench) -> None:
    await bench.notes("note")
    await bench.embed_all()
    ended = await asyncio.to_thread(
        palimpsest,
        "migrate",
        DATABASE_MIGRATION_URL=bench.database.url("superuser"),
        EMBEDDING_MODEL="ollama/nomic-embed-text",
    )
    assert ended.returncode == 0, ended.stderr
    assert [model.name for model in await list_models(bench.db)] == ["fake/words"]


@pytest.mark.parametrize("command", [[], ["status"], ["add"], ["activate"], ["drop"]], ids=" ".join)
def test_every_command_has_help(command: list[str]) -> None:
    ended = palimpsest("embeddings", *command, "--help")
    assert ended.returncode == 0
    assert ended.stdout.startswith("usage: palimpsest embeddings")


def test_the_owner_alone_changes_models(database: TestDatabase) -> None:
    with psycopg.connect(database.app) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("UPDATE embedding_models SET active = false")


async def test_the_owner_need_not_be_a_superuser(bench: Bench, run: Run) -> None:
    await bench.notes("note")
    owner = as_url(bench.database.owner)
    bench.superuser.execute("ALTER ROLE palimpsest_owner LOGIN")
    async with provider() as settings:
        await run("add", "openai/test-model", DATABASE_MIGRATION_URL=owner, **settings)
    (_, added) = (await run("status", DATABASE_MIGRATION_URL=owner))["models"]
    assert (added["units"], added["pending"]) == (1, 1)
    await run("activate", "openai/test-model", "--force", DATABASE_MIGRATION_URL=owner)
    await run("drop", "1", DATABASE_MIGRATION_URL=owner)
    assert [model.model_id for model in await list_models(bench.db)] == [2]
