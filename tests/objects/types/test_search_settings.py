"""A changed search setting of a type reaches existing objects by a job: their words, their text and their vectors."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from app.db.database import Database
from app.jobs import queries as job_queries
from app.jobs.registry import Job, LeaseLost, Postponed
from app.main import open_database
from app.objects.types import tasks
from app.objects.types.installation import TypesFile, load_types
from tests.conftest import TestDatabase
from tests.objects.conftest import Graph

Superuser = psycopg.Connection[dict[str, Any]]
Row = dict[str, Any]
OBJECT = """
    SELECT o.embed_text, o.terms <> '' AS searched, o.version, o.updated_at::text AS updated_at,
           ARRAY(SELECT q.queued_at::text FROM embedding_queue q
                 WHERE q.tenant_id = o.tenant_id AND q.owner_id = o.canonical_id) AS queued
    FROM graph_objects o WHERE o.canonical_id = %s"""


@pytest.fixture
def rows(database: TestDatabase) -> Iterator[Superuser]:
    with psycopg.Connection[Row].connect(database.superuser, autocommit=True, row_factory=dict_row) as connection:
        yield connection


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "DESCRIBED_AT_ONCE", 2)


def stored(rows: Superuser, thing: Row) -> Row:
    found = rows.execute(OBJECT.encode(), (thing["canonical_id"],)).fetchone()
    assert found is not None
    return found


def change(graph: Graph, type: str = "T", **settings: Any) -> Row:
    answer = graph.admin.post("/v1/graph/schemas/objects", json={"type": type, **settings})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def with_job(database: TestDatabase, rows: Superuser, job_id: str, work: Callable[[Job], Awaitable[None]]) -> None:
    """Lease one job and do something with its attempt."""

    async def run() -> None:
        db = open_database(database.settings())
        await db.open()
        try:
            others = (
                "UPDATE jobs SET available_at = now() + interval '1 hour' WHERE status = 'pending' AND job_id <> %s"
            )
            rows.execute(others, (job_id,))
            rows.execute("UPDATE jobs SET available_at = now() WHERE job_id = %s", (job_id,))
            (row,) = await db.call(job_queries.LEASE, ("test", [tasks.JOB], 1, 60.0, ""))
            await work(Job(db, "test", row))
        finally:
            await db.close()

    asyncio.run(run())


def finish(graph: Graph, database: TestDatabase, rows: Superuser, job_id: str) -> Row:
    """Run a job to its end and return it as the caller follows it."""
    with_job(database, rows, job_id, tasks.describe_objects)
    shown = graph.admin.get(f"/v1/jobs/{job_id}").json()
    assert (shown["status"], shown["kind"]) == ("completed", "describe_objects")
    return shown["result"]


@pytest.mark.usefixtures("small_steps")
def test_changed_settings_reach_existing_objects(graph: Graph, database: TestDatabase, rows: Superuser) -> None:
    bird: Row = {"name": "heron", "color": "grey", "nested": {"bird": "crane"}}
    made = [graph.make("T", properties=bird) for _ in range(4)]
    made.append(graph.make("T", client=graph.other, properties={"name": "heron elsewhere"}))
    made.append(graph.make("T", client=graph.admin, project_id=None, properties={"name": "heron of all"}))
    untouched = graph.make("Other", properties=bird)
    first = stored(rows, made[0])
    assert (first["embed_text"], first["searched"]) == ("heron\ngrey\ncrane", True)

    narrowed = change(graph, embedding_relevant_paths=["/nested/bird"])
    assert finish(graph, database, rows, narrowed["job_id"]) == {"looked": 6, "described": 4}
    second = stored(rows, made[0])
    assert second["embed_text"] == "heron\ncrane"
    assert second["queued"] > first["queued"], "its vector is made anew"

    silent = change(graph, embedding_policy="disabled", fts_enabled=False)
    assert finish(graph, database, rows, silent["job_id"]) == {"looked": 6, "described": 6}
    assert [(stored(rows, one)["embed_text"], stored(rows, one)["searched"]) for one in made] == [(None, False)] * 6
    assert stored(rows, made[0])["queued"] > second["queued"], "its vector is dropped with the next batch"
    recount = "SELECT count(*) AS n FROM jobs WHERE kind = 'recount' AND tenant_id = %s"
    assert rows.execute(recount.encode(), (graph.tenant,)).fetchone() == {"n": 2}, "for each project"

    back = change(graph)
    assert finish(graph, database, rows, back["job_id"])["described"] == 6
    third = stored(rows, made[0])
    assert {**third, "queued": 0} == {**first, "queued": 0}, "and neither a new version nor another time of change"
    assert stored(rows, untouched)["queued"] == stored(rows, untouched)["queued"]
    assert stored(rows, untouched)["searched"]


def test_only_a_change_of_search_settings_needs_a_job(graph: Graph) -> None:
    assert change(graph)["job_id"] is None, "an unregistered type has the same settings"
    assert change(graph, description="other words")["job_id"] is None
    assert change(graph, status="retired", fts_enabled=False, version=7)["job_id"] is None, "it does not count yet"
    path = "/v1/graph/schemas/objects/T"
    activated = graph.admin.patch(path, json={"version": 7, "status": "active"}).json()
    assert graph.admin.get(f"/v1/jobs/{activated['job_id']}").json()["project_id"] is None
    retired = graph.admin.patch(path, json={"version": 7, "status": "retired"}).json()
    assert retired["job_id"] not in (None, activated["job_id"]), "without a version it has the settings of none"
    assert graph.admin.patch(path, json={"version": 7, "status": "retired"}).json()["job_id"] is None


def test_an_agent_follows_the_job_of_its_project(graph: Graph, database: TestDatabase, rows: Superuser) -> None:
    made = graph.make("T", properties={"name": "heron"})
    answer = graph.agent.post("/v1/graph/schemas/objects", json={"type": "T", "fts_enabled": False}).json()
    shown = graph.agent.get(f"/v1/jobs/{answer['job_id']}").json()
    assert (shown["project_id"], shown["status"]) == ("one", "pending")
    elsewhere = graph.make("T", client=graph.other, properties={"name": "heron"})
    rows.execute("UPDATE graph_objects SET terms = 'heron' WHERE canonical_id = %s", (elsewhere["canonical_id"],))
    assert finish(graph, database, rows, answer["job_id"]) == {"looked": 1, "described": 1}
    assert not stored(rows, made)["searched"]
    assert stored(rows, elsewhere)["searched"], "a job of one project leaves others alone"


@pytest.mark.usefixtures("small_steps")
def test_a_killed_worker_loses_nothing_and_repeats_nothing(
    graph: Graph, database: TestDatabase, rows: Superuser, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [graph.make("T", properties={"name": f"heron {n}"}) for n in range(5)]
    job_id = change(graph, embedding_policy="disabled")["job_id"]
    monkeypatch.setattr(tasks, "TURN_SECONDS", 0.0)

    async def one_turn(job: Job) -> None:
        with pytest.raises(Postponed):
            await tasks.describe_objects(job)

    with_job(database, rows, job_id, one_turn)
    assert sum(stored(rows, one)["embed_text"] is None for one in made) == 2
    rows.execute("UPDATE jobs SET status = 'pending', lease_owner = NULL WHERE job_id = %s", (job_id,))
    monkeypatch.undo()

    async def lost(job: Job) -> None:
        rows.execute("UPDATE jobs SET lease_owner = 'another' WHERE job_id = %s", (job_id,))
        with pytest.raises(LeaseLost):
            await tasks.describe_objects(job)
        assert job.payload["looked"] == 2, "what was rolled back is not counted"

    with_job(database, rows, job_id, lost)
    assert sum(stored(rows, one)["embed_text"] is None for one in made) == 2
    rows.execute("UPDATE jobs SET status = 'pending', lease_owner = NULL WHERE job_id = %s", (job_id,))
    assert finish(graph, database, rows, job_id) == {"looked": 5, "described": 5}
    assert [stored(rows, one)["embed_text"] for one in made] == [None] * 5


def test_a_second_pass_finds_what_was_written_meanwhile(graph: Graph, database: TestDatabase, rows: Superuser) -> None:
    job_id = change(graph, embedding_policy="disabled")["job_id"]
    assert finish(graph, database, rows, job_id) == {"looked": 0, "described": 0}
    late = graph.make("T", properties={"name": "heron"})
    rows.execute("UPDATE graph_objects SET embed_text = 'heron' WHERE canonical_id = %s", (late["canonical_id"],))
    again = rows.execute(
        "SELECT job_id::text AS id FROM jobs WHERE tenant_id = %s AND kind = 'describe_objects' AND status = 'pending' "
        "AND available_at > now() + interval '1 minute'",
        (graph.tenant,),
    ).fetchall()
    assert len(again) == 1
    assert finish(graph, database, rows, again[0]["id"]) == {"looked": 1, "described": 1}
    assert stored(rows, late)["embed_text"] is None
    open_jobs = "SELECT FROM jobs WHERE tenant_id = %s AND kind = 'describe_objects' AND status = 'pending'"
    assert rows.execute(open_jobs.encode(), (graph.tenant,)).fetchall() == [], "there is no third pass"


def test_a_later_change_ends_the_job_of_an_earlier_one(graph: Graph, database: TestDatabase, rows: Superuser) -> None:
    made = graph.make("T", properties={"name": "heron"})
    first = change(graph, embedding_policy="disabled")["job_id"]
    second = change(graph, fts_enabled=False)["job_id"]
    assert finish(graph, database, rows, first) == {"looked": 0, "described": 0}
    found = stored(rows, made)
    assert (found["embed_text"], found["searched"]) == ("heron", True)
    assert finish(graph, database, rows, second) == {"looked": 1, "described": 1}
    found = stored(rows, made)
    assert (found["embed_text"], found["searched"]) == ("heron", False)


def test_hidden_objects_are_described_and_deleted_ones_are_not(
    graph: Graph, database: TestDatabase, rows: Superuser
) -> None:
    hidden, deleted = (graph.make("T", properties={"name": name}) for name in ("Zorblax", "heron"))
    tombstone = graph.admin.post("/v1/tombstones", json={"entity": "Zorblax", "reason": "asked"}).json()["tombstone"]
    graph.admin.delete(f"/v1/graph/objects/{deleted['id']}")
    job_id = change(graph, fts_enabled=False)["job_id"]
    assert finish(graph, database, rows, job_id) == {"looked": 1, "described": 1}
    path = f"/v1/tombstones/{tombstone['tombstone_id']}/revoke"
    graph.admin.post(path, json={"reason": "a mistake"}).raise_for_status()
    assert not stored(rows, hidden)["searched"]
    graph.admin.post(f"/v1/graph/objects/{deleted['id']}/restore").raise_for_status()
    assert not stored(rows, deleted)["searched"], "a restored object follows its type"


def test_a_type_of_the_installation_reaches_every_tenant_that_uses_it(
    graph: Graph, rival: Graph, database: TestDatabase, rows: Superuser
) -> None:
    name = f"Shared{graph.tenant}"
    mine, theirs = graph.make(name, properties={"name": "heron"}), rival.make(name, properties={"name": "heron"})

    def load(**settings: Any) -> int:
        async def run() -> int:
            owner = Database(database.superuser, pool_size=1)
            try:
                (loaded,) = await load_types(owner, TypesFile(objects=[{"type": name, **settings}]))
                return loaded["jobs"]
            finally:
                await owner.close()

        return asyncio.run(run())

    assert load() == 0
    assert load(embedding_policy="disabled") == 2
    assert load(embedding_policy="disabled") == 0
    for one, thing in ((graph, mine), (rival, theirs)):
        listed = one.admin.get("/v1/jobs", params={"kind": "describe_objects"})
        assert listed.status_code == 200, listed.text
        (job,) = listed.json()["jobs"]
        assert finish(one, database, rows, job["job_id"]) == {"looked": 1, "described": 1}
        assert stored(rows, thing)["embed_text"] is None
    rival.register("object", name)
    assert load(embedding_policy="disabled", fts_enabled=False) == 1, "the other has a version of its own"
