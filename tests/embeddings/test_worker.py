"""The worker that embeds: what it embeds, when, and what it leaves alone."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest

from app.access import SCOPES, Principal, new_id
from app.cli.administration import create_project, create_tenant
from app.embeddings.embedders import Embedders, Pace
from app.embeddings.models import list_models
from app.embeddings.tasks import queue_missing
from app.erasure.schemas import TombstoneCreate, TombstoneRevoke
from app.erasure.tombstones import create_tombstone, custodian, revoke_tombstone
from app.facts.retractions import retract_fact
from app.facts.schemas import FactRetract
from app.notes.schemas import NotePatch
from app.notes.service import delete_note, patch_note
from app.providers.base import Matrix
from app.providers.fake import FakeEmbedder
from app.tenancy.schemas import ProjectCreate, TenantCreate
from tests.embeddings.conftest import ROBIN, Bench

pytestmark = pytest.mark.anyio

SAID: dict[str, Any] = {"author": "Alice", "occurred_at": "2023-05-08T10:00:00Z"}


async def patch(bench: Bench, note: str, **changes: Any) -> None:
    data = msgspec.convert({"reason": "a test", **changes}, NotePatch)
    await patch_note(bench.db, ROBIN, note_id=UUID(note), data=data)


async def test_at_emb_1_a_new_note_is_queued_in_its_own_transaction(bench: Bench) -> None:
    (note,) = await bench.notes("Alice likes tea.", **SAID)
    (line,) = bench.queue
    assert (line["owner_kind"], str(line["owner_id"]), line["model_id"], line["attempts"]) == ("note", note, 1, 0)


async def test_at_emb_3_a_batch_is_embedded_and_leaves_the_queue(bench: Bench) -> None:
    await bench.notes(*(f"Alice likes tea number {number}." for number in range(70)), **SAID)
    await bench.embed_all(embed_batch_size=32)
    assert len(bench.vectors) == 70
    assert [len(call) for call in bench.fake.calls] == [32, 32, 6]
    assert bench.seen[0].startswith("Alice (8 May 2023): Alice likes tea number")
    assert bench.one("SELECT vectors FROM embedding_counts") == 70


async def test_at_emb_2_what_changes_no_text_asks_no_provider(bench: Bench) -> None:
    (note,) = await bench.notes("Alice likes tea.", **SAID)
    await bench.embed_all()
    await patch(bench, note, pinned=True)
    assert bench.queue == []
    await patch(bench, note, tags=["drinks"])
    assert len(bench.queue) == 1
    await bench.embed_all()
    assert bench.seen == ["Alice (8 May 2023): Alice likes tea."]


async def test_a_changed_text_is_embedded_again_but_not_at_once(bench: Bench) -> None:
    (note,) = await bench.notes("Alice likes tea.", **SAID)
    async with bench.working(embed_reembed_seconds=2.0):
        await bench.drained()
        embedded_at = bench.vectors[0]["embedded_at"]
        await patch(bench, note, content="Alice likes coffee.")
        await bench.until(lambda: bench.queue[0]["available_at"] > embedded_at + timedelta(seconds=1.9))
        assert bench.queue[0]["attempts"] == 0
        await patch(bench, note, content="Alice likes cocoa.")
        await bench.drained()
    assert [text.rpartition(" ")[2] for text in bench.seen] == ["tea.", "cocoa."], "the one in between never mattered"
    assert bench.vectors[0]["embedded_at"] >= embedded_at + timedelta(seconds=2)
    assert bench.one("SELECT vectors FROM embedding_counts") == 1


async def test_facts_are_embedded_as_they_are_read(bench: Bench) -> None:
    fact = await bench.fact("user:alice-smith", "likes", "green tea", confidence=0.9)
    weak = await bench.fact("Bob", "likes", "coffee", confidence=0.05)
    await bench.embed_all()
    assert bench.seen == ["alice-smith likes green tea"]
    assert {str(row["owner_id"]) for row in bench.vectors} == {fact} != {weak}
    await retract_fact(bench.db, ROBIN, fact_id=UUID(fact), data=FactRetract(reason="wrong"))
    await bench.embed_all()
    assert bench.vectors == []
    assert bench.one("SELECT vectors FROM embedding_counts") == 0


async def test_a_deleted_note_loses_its_vector(bench: Bench) -> None:
    one, two = await bench.notes("first", "second")
    await bench.embed_all()
    await delete_note(bench.db, ROBIN, note_id=UUID(one), reason="a test", if_version=None)
    await bench.embed_all()
    assert [str(row["owner_id"]) for row in bench.vectors] == [two]


async def test_what_is_private_or_in_a_garden_is_embedded_and_stays_so(bench: Bench) -> None:
    garden = new_id()
    await bench.notes("for me alone", scope="agent_private")
    bench.superuser.execute(
        "INSERT INTO gardens (tenant_id, project_id, garden_id, slug, name, scope, description, created_by, "
        "created_at) VALUES ('acme', 'default', %s, 'g', 'g', 'project_shared', '', 'robin', now())",
        (garden,),
    )
    bench.superuser.execute(
        "INSERT INTO garden_members (tenant_id, project_id, garden_id, agent_id, role, added_by, added_at) "
        "VALUES ('acme', 'default', %s, 'robin', 'admin', 'robin', now())",
        (garden,),
    )
    member = msgspec.structs.replace(ROBIN, gardens=(garden,))
    await bench.notes("for the garden", who=member, garden_id=garden)
    await bench.embed_all()
    kept = {(row["scope"], row["agent_id"], str(row["garden_id"])) for row in bench.vectors}
    assert kept == {("agent_private", "robin", "None"), ("project_shared", "robin", garden)}
    for who, sees in ((ROBIN, 1), (member, 2), (msgspec.structs.replace(ROBIN, agent_id="wren"), 0)):
        found = await bench.db.query(who, "SELECT owner_id FROM embeddings WHERE tenant_id = 'acme'", {})
        assert len(found) == sees


class Pausing(FakeEmbedder):
    """Has its answer ready, and keeps it until it may go on."""

    def __init__(self, dimensions: int = 64) -> None:
        super().__init__(dimensions, max_batch=1000)
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def embed(self, texts: Any, *, query: bool = False) -> Matrix:
        answer = await super().embed(texts, query=query)
        self.asked.set()
        await self.go_on.wait()
        return answer


async def test_what_changes_while_it_is_embedded_is_embedded_again(bench: Bench) -> None:
    bench.fakes["words"] = slow = Pausing()
    one, two = await bench.notes("first", "second")
    async with bench.working():
        await slow.asked.wait()
        await patch(bench, one, content="first, changed")
        await delete_note(bench.db, ROBIN, note_id=UUID(two), reason="a test", if_version=None)
        slow.go_on.set()
        await bench.drained()
    assert [str(row["owner_id"]) for row in bench.vectors] == [one]
    assert slow.calls[-1] == ("first, changed",)


async def test_what_is_hidden_while_it_is_embedded_gets_no_vector_until_it_comes_back(bench: Bench) -> None:
    told, seen = await bench.notes("Mallory is here", "somebody is here")
    known = await bench.fact("Mallory", "likes", "tea")
    bench.fakes["words"] = slow = Pausing()
    admin = msgspec.structs.replace(ROBIN, kind="admin", scopes=frozenset(SCOPES))
    async with bench.working():
        await slow.asked.wait()
        asked = TombstoneCreate(entity="Mallory", reason="a test")
        async with bench.db.tenant(custodian(admin)) as session:
            made = await create_tombstone(session, admin, data=asked)
        slow.go_on.set()
        await bench.drained()
        assert {str(row["owner_id"]) for row in bench.vectors} == {seen}
        assert bench.one("SELECT vectors FROM embedding_counts") == 1
        hidden = made.value.tombstone.tombstone_id
        back = TombstoneRevoke(reason="a test")
        async with bench.db.tenant(custodian(admin)) as session:
            await revoke_tombstone(session, admin, tombstone_id=hidden, data=back)
        await bench.drained()
    kept = {(str(row["owner_id"]), row["suppression"]) for row in bench.vectors}
    assert kept == {(seen, 0), (told, 0), (known, 0)}


async def test_a_worker_killed_before_it_could_store_repeats_its_work_and_nothing_else(bench: Bench) -> None:
    bench.fakes["words"] = slow = Pausing()
    await bench.notes(*(f"note {number}" for number in range(10)))
    async with bench.working(drain_seconds=0.0):
        await slow.asked.wait()
    assert bench.vectors == []
    assert {line["attempts"] for line in bench.queue} == {0}
    slow.go_on.set()
    await bench.embed_all()
    assert len(bench.vectors) == 10
    assert [len(call) for call in slow.calls] == [10, 10]
    assert bench.one("SELECT vectors FROM embedding_counts") == 10
    assert bench.one("SELECT documents FROM lexical_statistics WHERE kind = 'note'") == 10


async def test_a_unit_that_is_being_changed_waits_and_holds_up_nobody(bench: Bench) -> None:
    busy, free = await bench.notes("busy", "free")
    with psycopg.connect(bench.database.superuser) as holder:
        holder.execute("SELECT FROM memory_notes WHERE note_id = %s FOR UPDATE", (busy,))
        async with bench.working():
            await bench.until(lambda: [str(row["owner_id"]) for row in bench.vectors] == [free])
            await bench.until(lambda: bench.queue[0]["available_at"] > datetime.now(UTC))
            holder.rollback()
            await bench.drained()
    assert len(bench.vectors) == 2


async def test_words_are_counted_anew_when_much_was_added(bench: Bench) -> None:
    await bench.notes(*(f"tea number {number}" for number in range(100)))
    await bench.embed_all()
    assert bench.one("SELECT documents FROM lexical_statistics WHERE kind = 'note'") == 100
    assert bench.one("SELECT documents FROM lexical_frequencies WHERE term = 'tea'") == 100
    await bench.notes(*(f"coffee number {number}" for number in range(10)))
    await bench.embed_all()
    assert bench.rows("SELECT documents, added FROM lexical_statistics WHERE kind = 'note'") == [
        {"documents": 100, "added": 10}
    ], "a tenth more is not much"


async def test_a_card_is_made_anew_when_a_fact_of_its_subject_came_or_went(bench: Bench) -> None:
    first = await bench.fact("Alice", "likes", "tea")
    await bench.fact("Bob", "likes", "tea")
    await bench.embed_all()
    assert [job for job in bench.jobs if job["kind"] == "card_refresh"] == [], "neither of them has a card"
    entity = bench.one("SELECT subject_entity_id FROM graph_facts WHERE fact_id = %s", first)
    bench.superuser.execute(
        "INSERT INTO memory_cards (tenant_id, card_id, project_id, entity_id, scope, agent_id, owner_key, content, "
        "facts, omitted, built_at) VALUES ('acme', gen_random_uuid(), 'default', %s, 'project_shared', 'robin', '', "
        "'Alice likes tea.', 1, 0, now())",
        (entity,),
    )
    await bench.fact("Alice", "likes", "cocoa")
    await bench.fact("Bob", "likes", "cocoa")
    await bench.embed_all()
    (job,) = [job for job in bench.jobs if job["kind"] == "card_refresh"]
    assert job["payload"] == {"entity_id": str(entity)}
    bench.superuser.execute("DELETE FROM jobs WHERE kind = 'card_refresh'")
    await retract_fact(bench.db, ROBIN, fact_id=UUID(first), data=FactRetract(reason="wrong"))
    await bench.embed_all()
    assert [job["payload"] for job in bench.jobs if job["kind"] == "card_refresh"] == [{"entity_id": str(entity)}]


async def test_without_a_model_nothing_is_queued(bench: Bench) -> None:
    bench.superuser.execute("DELETE FROM embedding_models")
    await bench.notes("Alice likes tea.")
    await bench.fact("Alice", "likes", "tea")
    assert bench.queue == []


async def other_tenant(bench: Bench, name: str) -> Principal:
    await create_tenant(bench.db, TenantCreate(tenant_id=name))
    await create_project(bench.db, ProjectCreate(tenant_id=name, project_id="default"))
    return msgspec.structs.replace(ROBIN, tenant_id=name)


async def test_nobody_has_to_wait_for_the_end_of_a_large_backlog(bench: Bench) -> None:
    class Slow(FakeEmbedder):
        async def embed(self, texts: Any, *, query: bool = False) -> Matrix:
            await asyncio.sleep(0.2)
            return await super().embed(texts, query=query)

    bench.fakes["words"] = Slow(64)
    waiting = "SELECT count(*) FROM embedding_queue WHERE tenant_id = 'acme'"
    numbers = count()

    async def flood() -> None:
        """Keeps the backlog large, however fast this machine embeds: those who wait for its end wait for ever."""
        while bench.one(waiting) < 300:
            await bench.notes(*(f"flood {next(numbers)}" for _ in range(100)))

    await flood()
    others = [await other_tenant(bench, name) for name in ("beta", "gamma", "delta")]
    async with bench.working(embed_batch_size=10, worker_concurrency=2):
        await bench.until(lambda: len(bench.vectors) > 10)
        for who in others:
            await bench.notes("mine", who=who)
        tenants = "SELECT count(DISTINCT tenant_id) FROM embeddings"
        deadline = time.monotonic() + 60
        while bench.one(tenants) < 4:
            assert time.monotonic() < deadline, "the others still wait"
            await flood()
            await asyncio.sleep(0.02)
        assert bench.one(waiting) > 0


async def test_the_confidence_from_which_facts_are_embedded_can_be_set(bench: Bench) -> None:
    await bench.fact("Ada", "likes", "green tea", confidence=0.6)
    weak = await bench.fact("Bob", "likes", "coffee", confidence=0.4)
    await bench.embed_all(embed_min_confidence=0.5)
    assert bench.seen == ["Ada likes green tea"]
    # A reconciliation follows the setting, in both directions.
    assert await queue_missing(bench.db, ROBIN, least=0.5) == 0
    assert await queue_missing(bench.db, ROBIN, least=0.3) == 1
    await bench.embed_all(embed_min_confidence=0.3)
    assert weak in {str(row["owner_id"]) for row in bench.vectors}


async def test_calls_of_a_provider_are_spaced_by_the_rate_that_is_set() -> None:
    now = 100.0
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(round(seconds, 3))

    pace = Pace(4, clock=lambda: now, sleep=sleep)
    for _ in range(4):
        await pace.wait()
    assert waits == [0.25, 0.5, 0.75], "the first starts at once, the others one after the other"
    now += 10
    await pace.wait()
    assert len(waits) == 3
    unlimited = Pace(0, clock=lambda: now, sleep=sleep)
    for _ in range(100):
        await unlimited.wait()
    assert len(waits) == 3


async def test_the_worker_keeps_to_the_rate_and_queries_do_not_wait(bench: Bench) -> None:
    await bench.notes(*(f"Alice likes tea number {number}." for number in range(5)))
    started = time.monotonic()
    await bench.embed_all(embedding_qps=4.0, embed_batch_size=1)
    assert len(bench.fake.calls) == 5
    assert time.monotonic() - started >= 1.0, "four pauses of a quarter of a second"
    (model,) = await list_models(bench.db)
    guarded = Embedders(bench.database.settings(embedding_qps=0.01), build=bench.build).of(model)
    await guarded.embed(["the only one for a hundred seconds"])
    assert await guarded.embed_query("tea", seconds=30) is not None
