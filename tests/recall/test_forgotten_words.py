"""Words of what is hidden weigh nothing: no score tells how often they were written."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.conftest import TestDatabase
from tests.erasure.shared import revoke, tombstone
from tests.recall.conftest import worlds
from tests.recall.shared import LEXICAL, Vectors, World
from tests.recall.test_traces import until
from tests.service import RunningService

pytestmark = pytest.mark.usefixtures("worker")

MANY = 70


@pytest.fixture(scope="module")
def new_world(database: TestDatabase, service: RunningService, vectors: Vectors) -> Iterator[Callable[..., World]]:
    """Worlds in a service of this module alone, beside a worker."""
    with worlds(database, service, vectors) as build:
        yield build


def documents(world: World) -> int:
    """How many notes the statistics tell of."""
    query = "SELECT coalesce(max(documents), 0) FROM lexical_statistics WHERE tenant_id = %s AND kind = 'note'"
    return world.one(query, world.tenant_id)


def frequent(world: World) -> int:
    """In how many notes the statistics know the word."""
    query = "SELECT coalesce(max(documents), 0) FROM lexical_frequencies WHERE tenant_id = %s AND term = 'quaxolotl'"
    return world.one(query, world.tenant_id)


def test_a_word_of_hidden_notes_weighs_as_much_as_one_nobody_wrote(world: World) -> None:
    said = [{"content": f"Mallory has a quaxolotl, number {number}"} for number in range(MANY)]
    assert world.robin.post("/v1/notes/batch", json={"notes": said}).status_code in (200, 201)
    one, other = world.note("A single quaxolotl."), world.note("A single zibberfish.")
    world.fact("Mallory", "has", "a pond")
    until(lambda: frequent(world) == MANY + 1)

    def weights() -> list[float]:
        scores = world.scores("quaxolotl zibberfish", weights=LEXICAL, include=["notes"])
        return [scores[note]["lexical"] for note in (one, other)]

    before = weights()
    assert before[0] < before[1], "or there is nothing to hide"
    made = tombstone(world.admin, "Mallory")
    hidden = weights()
    assert hidden[0] == hidden[1]
    # Nothing else is written: the words are counted anew by themselves.
    until(lambda: documents(world) == 2)
    assert frequent(world) == 0
    hidden = weights()
    assert hidden[0] == hidden[1]
    jobs = [client.get("/v1/jobs", params={"limit": 200}).json()["jobs"] for client in (world.robin, world.admin)]
    assert ["recount" in {job["kind"] for job in listed} for listed in jobs] == [False, True]
    revoke(world.admin, made)
    until(lambda: frequent(world) == MANY + 1)
    assert weights() == pytest.approx(before)


def count_notes(connection: psycopg.Connection[tuple[object, ...]], world: World) -> None:
    """Count the terms of the world's notes, as the worker does."""
    with connection.transaction():
        for name, value in (("tenant_id", world.tenant_id), ("project_id", "default")):
            connection.execute("SELECT set_config(%s, %s, true)", (f"app.{name}", value))
        connection.execute("SELECT refresh_lexicon('note', 64)")


def test_words_that_are_hidden_while_they_are_counted_are_counted_again(world: World, database: TestDatabase) -> None:
    said = [{"content": f"A quaxolotl, number {number}"} for number in range(MANY)]
    world.robin.post("/v1/notes/batch", json={"notes": said})
    until(lambda: frequent(world) == MANY)
    with (
        psycopg.connect(database.superuser, autocommit=True) as counting,
        psycopg.connect(database.superuser) as hiding,
        ThreadPoolExecutor(1) as pool,
    ):
        hiding.execute("UPDATE lexical_statistics SET added = added WHERE tenant_id = %s", (world.tenant_id,))
        running = pool.submit(count_notes, counting, world)
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        until(lambda: world.one(blocked, counting.info.backend_pid) == 1)
        # It has counted already: this does not wait for it, and what it counted must not be stored.
        hiding.execute("UPDATE memory_notes SET suppression = 1 WHERE tenant_id = %s", (world.tenant_id,))
        hiding.execute("SELECT recount_terms(%s, 'default')", (world.tenant_id,))
        hiding.commit()
        running.result(30)
        assert frequent(world) == 0
    until(lambda: documents(world) == 0)
    assert frequent(world) == 0


def test_what_a_merge_hides_is_not_counted_either(world: World) -> None:
    said = [{"content": f"A quaxolotl, number {number}"} for number in range(MANY)]
    answer = world.robin.post("/v1/notes/batch", json={"notes": said}).json()
    for number in range(0, MANY, 10):
        notes = [item["note"]["note_id"] for item in answer["results"][number : number + 10]]
        world.fact("Moe", "has", f"pond {number}", evidence=notes)
    world.fact("Mallory", "has", "a pond", scope="agent_private")
    until(lambda: frequent(world) == MANY)
    tombstone(world.admin, "Mallory", scope="project_shared")
    ids = [
        world.robin.post("/v1/entities", json={"canonical": name}).json()["entity"]["entity_id"]
        for name in ("Moe", "Mallory")
    ]
    merged = world.admin.post(f"/v1/entities/{ids[0]}/merge", json={"into": ids[1]})
    assert merged.status_code == 200, merged.text
    assert world.recall("quaxolotl", include=["notes"])["results"] == []
    assert frequent(world) == 0
