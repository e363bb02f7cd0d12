"""Live, visible objects on main that have a text are embedded, as notes are."""

from typing import Any

import pytest

from app.embeddings.tasks import reconcile
from app.jobs.queries import LEASE
from app.jobs.registry import Job
from app.objects.types.schemas import ObjectTypeCreate, ObjectTypeWritten
from app.objects.types.service import register_type
from app.objects.types.tasks import describe_objects
from tests.embeddings.conftest import ROBIN, Bench
from tests.objects.entity_links.shared import Objects

pytestmark = pytest.mark.anyio

NEAR = """
    SELECT owner_id::text AS id FROM nearest_units(
        ROW('acme', 'default', NULL, NULL, NULL)::read_context, NULL, ROW(1, 64, %s)::vector_query, 'object', 10)"""


@pytest.fixture
def written(bench: Bench) -> Objects:
    return Objects(bench.superuser)


def owners(bench: Bench) -> set[str]:
    return {str(row["owner_id"]) for row in bench.vectors}


async def test_heads_with_a_text_are_embedded_as_shared_and_counted(bench: Bench, written: Objects) -> None:
    ada = written.put("Ada", embed_text="Ada wrote programs")
    written.put("Mute", embed_text=None)
    written.put("Everybody's", project=None, embed_text="of no project")
    await bench.embed_all()
    (row,) = bench.vectors
    assert (str(row["owner_id"]), row["owner_kind"], row["scope"]) == (ada, "object", "project_shared")
    assert (row["agent_id"], row["garden_id"], row["suppression"]) == ("", None, 0)
    assert bench.seen == ["Ada wrote programs"]
    assert bench.one("SELECT vectors FROM embedding_counts") == 1
    assert bench.one("SELECT count(*) FROM lexical_statistics WHERE kind = 'object'") == 1, "words are counted too"
    with bench.superuser.transaction():
        bench.superuser.execute("SELECT set_scope('acme', 'default', 'wren', '{}', '')")
        bench.superuser.execute("SET LOCAL ROLE palimpsest_app")
        assert bench.rows(NEAR, str(row["vector"])) == [{"id": ada}]


async def test_what_changes_is_embedded_anew_and_what_goes_loses_its_vector(bench: Bench, written: Objects) -> None:
    changed, deleted, silenced = (written.put(name) for name in ("one", "two", "three"))
    await bench.embed_all()
    assert owners(bench) == {changed, deleted, silenced}
    written.change(changed, embed_text="quite another text")
    written.change(deleted, deleted_at="2026-01-01")
    written.change(silenced, embed_text=None)
    await bench.embed_all()
    assert owners(bench) == {changed}
    assert bench.seen[-1] == "quite another text"
    assert bench.one("SELECT vectors FROM embedding_counts") == 1


async def test_texts_are_redacted_before_they_leave(bench: Bench, written: Objects) -> None:
    written.put("x", embed_text="the password: hunter2")
    await bench.embed_all()
    assert bench.seen == ["the [REDACTED]"]


async def test_reconciliation_puts_objects_in_step_too(bench: Bench, written: Objects) -> None:
    missing, gone, hidden = (written.put(name) for name in ("one", "two", "three"))
    orphan = written.put("four", project=None)
    await bench.embed_all()
    execute = bench.superuser.execute
    execute("DELETE FROM embeddings WHERE owner_id = %s", (missing,))
    execute("UPDATE graph_objects SET deleted_at = now() WHERE canonical_id = %s", (gone,))
    execute("UPDATE graph_objects SET suppression = 2 WHERE canonical_id = %s", (hidden,))
    execute(
        "INSERT INTO embedding_queue (tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at) "
        "VALUES ('acme', 'default', 'object', %s, 1, now(), now() + interval '1 hour')",
        (orphan,),
    )
    done = "SELECT count(*) FROM jobs WHERE kind = 'embed_reconcile' AND status = 'completed'"
    async with bench.working(handlers={"embed_reconcile": reconcile}):
        await bench.until(lambda: bench.one(done) == 1)
        await bench.drained()
    assert {(str(row["owner_id"]), row["suppression"]) for row in bench.vectors} == {(missing, 0), (hidden, 2)}
    assert bench.one("SELECT vectors FROM embedding_counts") == 2


async def test_units_and_vectors_of_objects_are_in_the_coverage(bench: Bench, written: Objects) -> None:
    figures = "SELECT units, vectors, queued FROM diagnose_project(0.1, 10, 10, 30)"

    def told() -> Any:
        with bench.superuser.transaction():
            bench.superuser.execute("SELECT set_scope('acme', 'default', '', '{}', '')")
            return bench.rows(figures)

    for name in ("one", "two"):
        written.put(name)
    written.put("three", embed_text=None)
    assert told() == [{"units": 2, "vectors": 0, "queued": 3}], "whoever writes a head queues it; the worker looks"
    await bench.embed_all()
    assert told() == [{"units": 2, "vectors": 2, "queued": 0}]


async def test_a_type_that_turns_embedding_off_drops_the_vectors_and_on_makes_them(
    bench: Bench, written: Objects
) -> None:
    kept, heron = written.put("kept"), written.put("heron", type="Bird")
    await bench.embed_all()
    assert owners(bench) == {kept, heron}

    async def register(policy: str, version: int) -> None:
        data = ObjectTypeCreate(type="Bird", embedding_policy=policy, version=version)  # type: ignore[arg-type]
        async with bench.db.tenant(ROBIN) as session:
            answer = (await register_type(session, ROBIN, "object", data=data)).value
        assert isinstance(answer, ObjectTypeWritten)
        assert answer.job_id is not None
        (row,) = await bench.db.call(LEASE, ("test", ["describe_objects"], 1, 60.0, ""))
        await describe_objects(Job(bench.db, "test", row))
        await bench.embed_all()

    await register("disabled", 1)
    assert owners(bench) == {kept}
    assert bench.one("SELECT vectors FROM embedding_counts") == 1
    await register("required", 2)
    assert owners(bench) == {kept, heron}
