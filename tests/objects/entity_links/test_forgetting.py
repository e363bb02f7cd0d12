"""A tombstone hides the objects that are bound to its entity or name it, with their relationships and vectors."""

import threading
import time
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import TestDatabase
from tests.erasure.shared import revoke, tombstone, until_erased
from tests.facts.shared import error, new, note
from tests.objects.entity_links.shared import Objects, Superuser

SETTLE = "SELECT hide_or_restore_objects('acme', %s::uuid[])"


def entity(robin: httpx.Client, name: str, **fields: Any) -> str:
    answer = robin.post("/v1/entities", json={"canonical": name, **fields})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()["entity"]["entity_id"]


def name() -> str:
    return f"Zebulon {uuid4().hex[:10]}"


class Planted:
    """Objects that are bound to an entity or name it in different fields, and objects that do neither."""

    def __init__(self, objects: Objects, robin: httpx.Client) -> None:
        self.name = name()
        self.alias = f"Zeb-{uuid4().hex[:8]}"
        self.entity_id = entity(robin, self.name, aliases=[self.alias])
        put = objects.put
        self.bound = put("stands for somebody")
        objects.bind(self.entity_id, self.bound)
        self.shared = put("of no project", project=None)
        self.named = [
            put(f"About {self.name.upper()}"),
            put("by key", key=self.name.lower().replace(" ", "-"), type="Keyed"),
            put("by label", labels=["a", self.alias]),
            put("by status", status=f"waits for {self.name}"),
            put("by property", properties={"deep": [{"er": f"as {self.name} says"}]}),
            put("by the name of a property", properties={"scores": {self.name: 3}}),
            put("by evidence", evidence=[{"quote": f'he is "{self.alias}"\nthey say'}]),
        ]
        once = put(f"once {self.name}")
        objects.change(once, title="now silent")
        self.named.append(once)
        self.doomed = [self.bound, *self.named]
        self.kept = [put("somebody else"), put(f"{self.name}x is another"), self.shared]
        self.edges = [
            objects.relate(self.bound, self.kept[0]),
            objects.relate(self.kept[0], self.bound, type="owns", properties={"since": 2020}),
            objects.relate(self.kept[0], self.kept[1], type="heard", properties={"of": self.name}),
        ]
        self.deleted_edge = objects.relate(self.kept[1], self.bound, type="left")
        objects.superuser.execute(
            "UPDATE graph_relationships SET deleted_at = now() WHERE canonical_id = %s", (self.deleted_edge,)
        )
        self.edges.append(self.deleted_edge)
        self.kept_edge = objects.relate(self.kept[0], self.kept[1], type="met")


@pytest.fixture
def planted(objects: Objects, robin: httpx.Client) -> Planted:
    return Planted(objects, robin)


def snapshot(objects: Objects, planted: Planted) -> list[Any]:
    """Return all stored rows of the objects and relationships."""
    tables = ("graph_objects", "graph_object_versions", "graph_relationships", "graph_relationship_versions")
    ids = [*planted.doomed, *planted.kept, *planted.edges, planted.kept_edge]
    return [
        objects.rows(f"SELECT * FROM {table} WHERE canonical_id = ANY (%s::uuid[]) ORDER BY version_id", ids)
        for table in tables
    ]


@pytest.mark.parametrize(("hold", "level"), [(False, 1), (True, 2)])
def test_a_tombstone_hides_what_is_bound_or_names_it_and_revoking_restores_exactly(
    objects: Objects, planted: Planted, admin: httpx.Client, hold: bool, level: int
) -> None:
    before = snapshot(objects, planted)
    answer = admin.post("/v1/tombstones", json={"entity": planted.name, "reason": "they asked", "legal_hold": hold})
    assert answer.json()["hidden"]["objects"] == len(planted.doomed)
    for hidden in [*planted.doomed, *planted.edges]:
        assert objects.levels(hidden) == {level}, hidden
    for kept in [*planted.kept, planted.kept_edge]:
        assert objects.levels(kept) == {0}
    assert (
        objects.rows(
            "SELECT FROM embedding_queue WHERE owner_kind = 'object' AND owner_id = ANY (%s::uuid[])", planted.doomed
        )
        == []
    )
    revoke(admin, answer.json()["tombstone"])
    assert snapshot(objects, planted) == before
    assert objects.rows("SELECT FROM object_entity_mentions") == []
    queued = objects.rows(
        "SELECT DISTINCT owner_id FROM embedding_queue WHERE owner_kind = 'object' AND owner_id = ANY (%s::uuid[])",
        planted.doomed,
    )
    assert len(queued) == len(planted.doomed), "they are embedded anew"


def test_only_what_is_linked_when_names_do_not_count_and_nothing_in_other_scopes(
    objects: Objects, planted: Planted, admin: httpx.Client
) -> None:
    made = tombstone(admin, planted.name, scope="agent_private")
    assert {level for found in planted.doomed for level in objects.levels(found)} == {0}
    revoke(admin, made)
    made = tombstone(admin, planted.name, notes="linked")
    assert [found for found in planted.doomed if objects.levels(found) == {1}] == [planted.bound]
    revoke(admin, made)
    assert objects.levels(planted.bound) == {0}


def test_the_policy_hides_a_hold_from_all_but_its_keepers(
    objects: Objects, planted: Planted, admin: httpx.Client, database: TestDatabase
) -> None:
    tombstone(admin, planted.name, legal_hold=True)
    with psycopg.connect(database.app) as connection:
        for reach, seen in (("", 0), ("cross_project", 0), ("legal_hold", 1)):
            connection.execute("SELECT set_scope('acme', 'default', 'robin', '{}', %s)", (reach,))
            for table in ("graph_objects", "graph_object_versions"):
                found = connection.execute(
                    f"SELECT FROM {table} WHERE tenant_id = 'acme' AND canonical_id = %s".encode(), (planted.bound,)
                ).fetchall()
                assert len(found) == seen
            connection.rollback()


def test_two_tombstones_on_one_object_each_hide_it(objects: Objects, robin: httpx.Client, admin: httpx.Client) -> None:
    one, two = name(), name()
    entity(robin, one), entity(robin, two)
    both = objects.put(f"{one} and {two}")
    first, second = tombstone(admin, one), tombstone(admin, two, legal_hold=True)
    assert objects.levels(both) == {1}, "the stricter one counts"
    revoke(admin, first)
    assert objects.levels(both) == {2}
    revoke(admin, second)
    assert objects.levels(both) == {0}


def test_a_bound_object_of_no_project_is_hidden_in_all(objects: Objects, planted: Planted, admin: httpx.Client) -> None:
    objects.bind(planted.entity_id, planted.shared)
    made = tombstone(admin, planted.name)
    assert objects.levels(planted.shared) == {1}
    revoke(admin, made)
    assert objects.levels(planted.shared) == {0}


def test_what_took_its_key_or_place_meanwhile_keeps_it(
    objects: Objects, robin: httpx.Client, admin: httpx.Client
) -> None:
    who = name()
    entity(robin, who)
    key = uuid4().hex
    hidden = objects.put(f"{who} first", key=key)
    other = objects.put("other", key=f"{key}-other")
    one = objects.relate(hidden, other, type="leads", one_dst=True)
    plain = objects.relate(other, hidden, type="follows")
    made = tombstone(admin, who)
    newer = objects.put("newcomer", key=key)
    place = objects.relate(newer, other, type="leads", one_dst=True)
    revoke(admin, made)
    head = objects.one("SELECT * FROM graph_objects WHERE canonical_id = %s", hidden)
    assert (head["suppression"], head["version"], head["deleted_at"] is not None) == (0, 2, True)
    versions = objects.rows(
        "SELECT version, version_id, supersedes_id, deleted_at, suppression FROM graph_object_versions "
        "WHERE canonical_id = %s ORDER BY version",
        hidden,
    )
    assert [row["version"] for row in versions] == [1, 2]
    assert versions[1]["supersedes_id"] == versions[0]["version_id"]
    assert versions[1]["deleted_at"] == head["deleted_at"]
    for edge in (one, plain):
        row = objects.one("SELECT * FROM graph_relationships WHERE canonical_id = %s", edge)
        assert (str(row["deleted_with"]), row["suppression"], row["version"]) == (hidden, 0, 2)
    assert objects.one("SELECT deleted_at FROM graph_objects WHERE canonical_id = %s", newer)["deleted_at"] is None
    assert (
        objects.one("SELECT deleted_at FROM graph_relationships WHERE canonical_id = %s", place)["deleted_at"] is None
    )


def test_of_two_that_come_back_at_once_with_one_key_the_older_keeps_it(
    objects: Objects, robin: httpx.Client, admin: httpx.Client
) -> None:
    who, key = name(), uuid4().hex
    entity(robin, who)
    older = objects.put(f"{who} first", key=key)
    first = tombstone(admin, who)
    newer = objects.put(f"{who} second", key=key)
    second = tombstone(admin, who, legal_hold=True)
    assert objects.levels(older) == objects.levels(newer) == {1}, "all that is known of it by now"
    revoke(admin, first)
    assert objects.levels(older) == objects.levels(newer) == {2}
    revoke(admin, second)
    state = {
        found: objects.one("SELECT suppression, deleted_at FROM graph_objects WHERE canonical_id = %s", found)
        for found in (older, newer)
    }
    assert {row["suppression"] for row in state.values()} == {0}
    assert (state[older]["deleted_at"], state[newer]["deleted_at"] is None) == (None, False)


def test_a_relationship_whose_place_is_taken_comes_back_deleted(
    objects: Objects, robin: httpx.Client, admin: httpx.Client
) -> None:
    who = name()
    entity(robin, who)
    hidden, other, third = objects.put(f"{who} himself"), objects.put("other"), objects.put("third")
    taken = objects.relate(hidden, other, type="leads", one_dst=True)
    kept = objects.relate(hidden, third, type="leads", one_dst=True)
    made = tombstone(admin, who)
    objects.relate(third, other, type="leads", one_dst=True)
    revoke(admin, made)
    row = objects.one("SELECT * FROM graph_relationships WHERE canonical_id = %s", taken)
    assert (row["deleted_at"] is not None, row["deleted_with"], row["version"]) == (True, None, 2)
    assert objects.levels(taken) == objects.levels(kept) == objects.levels(hidden) == {0}
    assert objects.one("SELECT deleted_at FROM graph_relationships WHERE canonical_id = %s", kept)["deleted_at"] is None


def test_what_is_written_of_a_hidden_object_is_settled_by_its_writer(
    objects: Objects, planted: Planted, admin: httpx.Client, database: TestDatabase
) -> None:
    tombstone(admin, planted.name)
    objects.superuser.execute("UPDATE graph_objects SET suppression = 0 WHERE canonical_id = %s", (planted.bound,))
    objects.change(planted.bound, title="changed meanwhile")
    edge = objects.relate(planted.bound, planted.kept[0], type="meanwhile")
    with psycopg.connect(database.app) as connection:
        connection.execute("SELECT set_scope('acme', 'default', 'robin', '{}', '')")
        connection.execute(SETTLE, ([planted.bound, edge, planted.kept[0]],))
    assert objects.levels(planted.bound) == objects.levels(edge) == {1}
    assert objects.levels(planted.kept[0]) == {0}
    with psycopg.connect(database.app) as connection:
        connection.execute("SELECT set_scope('rival', 'default', 'robin', '{}', '')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(SETTLE, ([planted.bound],))


def test_a_tombstone_waits_for_who_changes_the_object_and_hides_that_version_too(
    objects: Objects, planted: Planted, admin: httpx.Client, database: TestDatabase
) -> None:
    answers: list[Any] = []
    with psycopg.connect(database.superuser) as writer:
        writer.execute("SELECT set_scope('acme', 'default', 'robin', '{}', '')")
        writer.execute("UPDATE graph_objects SET version = 2 WHERE canonical_id = %s", (planted.bound,))
        writer.execute(
            "INSERT INTO graph_object_versions (tenant_id, branch_id, canonical_id, version_id, version, project_id, "
            "type, labels, properties, content_hash, written_by, created_at) "
            "SELECT tenant_id, branch_id, canonical_id, gen_random_uuid(), 2, project_id, type, labels, properties, "
            "content_hash, 'robin', now() FROM graph_objects WHERE canonical_id = %s",
            (planted.bound,),
        )
        issuing = threading.Thread(target=lambda: answers.append(tombstone(admin, planted.name)))
        issuing.start()
        time.sleep(0.5)
        assert not answers
        writer.execute(SETTLE, ([planted.bound],))
    issuing.join(20)
    assert answers
    assert objects.levels(planted.bound) == {1}
    assert len(objects.rows("SELECT FROM graph_object_versions WHERE canonical_id = %s", planted.bound)) == 2


def test_stored_answers_that_show_a_hidden_object_are_gone(
    objects: Objects, planted: Planted, admin: httpx.Client, superuser: Superuser
) -> None:
    keep = (
        "INSERT INTO idempotency_keys (tenant_id, key_id, method, path, idempotency_key, request_hash, status, body, "
        "sealed, created_at, expires_at) VALUES ('acme', gen_random_uuid(), 'POST', %s, %s, 'x', 201, %s, false, "
        "now(), now() + interval '1 day')"
    )
    for mark, shown in (("hidden", planted.bound), ("edge", planted.edges[0]), ("kept", planted.kept[0])):
        body = f'{{"object": {{"id": "{shown}"}}}}'.encode()
        superuser.execute(keep, ("/v1/graph/objects default", f"{planted.name} {mark}", body))
    tombstone(admin, planted.name)
    left = objects.rows(
        "SELECT idempotency_key FROM idempotency_keys WHERE starts_with(idempotency_key, %s)", planted.name
    )
    assert [row["idempotency_key"].rpartition(" ")[2] for row in left] == ["kept"]


def test_merging_takes_bindings_and_mentions_along(objects: Objects, robin: httpx.Client, admin: httpx.Client) -> None:
    one, two = name(), name()
    source, target = entity(robin, one), entity(robin, two)
    bound = objects.put("stands for one")
    objects.bind(source, bound)
    assert robin.post(f"/v1/entities/{source}/merge", json={"into": target}).status_code == 200
    row = objects.one("SELECT object_canonical_id FROM graph_entities WHERE entity_id = %s", target)
    assert str(row["object_canonical_id"]) == bound
    own = entity(robin, name())
    kept = objects.put("stands for own")
    objects.bind(own, kept)
    assert robin.post(f"/v1/entities/{target}/merge", json={"into": own}).status_code == 200
    row = objects.one("SELECT object_canonical_id FROM graph_entities WHERE entity_id = %s", own)
    assert str(row["object_canonical_id"]) == kept
    made = tombstone(admin, two)
    assert objects.levels(bound) == objects.levels(kept) == {1}, "both stand for the same"
    revoke(admin, made)
    assert objects.levels(bound) == objects.levels(kept) == {0}


def test_an_entity_that_an_object_stands_for_is_not_cleared_away(
    objects: Objects, robin: httpx.Client, superuser: Superuser, database: TestDatabase
) -> None:
    said = note(robin)
    bound, loose = entity(robin, name()), entity(robin, name())
    objects.bind(bound, objects.put("stands for it"))
    superuser.execute(
        "INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at) "
        "SELECT 'acme', 'default', %s, x, now() FROM unnest(%s::uuid[]) x",
        (said, [bound, loose]),
    )
    superuser.execute("UPDATE memory_notes SET deleted_at = now() - interval '90 days' WHERE note_id = %s", (said,))
    with psycopg.connect(database.app) as connection:
        connection.execute("SELECT set_scope('acme', 'default', '', '{}', '')")
        connection.execute("SELECT * FROM purge_links(now() - interval '30 days', 100)")
    left = objects.rows("SELECT entity_id FROM graph_entities WHERE entity_id = ANY (%s::uuid[])", [bound, loose])
    assert [str(row["entity_id"]) for row in left] == [bound]


def test_erasure_destroys_objects_with_all_that_hangs_on_them(
    objects: Objects, planted: Planted, admin: httpx.Client, superuser: Superuser, worker: None
) -> None:
    superuser.execute(
        "INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, created_by, available_at, created_at, "
        "status, finished_at) VALUES ('acme', gen_random_uuid(), 'default', 'anything', %s, 'x', now(), now(), "
        "'completed', now())",
        (f'{{"object_id": "{planted.named[0]}"}}',),
    )
    versions = objects.rows(
        "SELECT version_id FROM graph_object_versions WHERE canonical_id = ANY (%s::uuid[])", planted.doomed
    )
    receipt = until_erased(admin, tombstone(admin, planted.name, erase=True))["receipt"]
    destroyed = receipt["destroyed"]
    assert destroyed["graph_objects"] == len(planted.doomed)
    assert destroyed["graph_object_versions"] == len(planted.doomed) + 1
    assert destroyed["graph_relationships"] == destroyed["graph_relationship_versions"] == len(planted.edges)
    assert destroyed["object_entity_mentions"] >= len(planted.named)
    assert receipt["names_left"] == []
    gone = {*planted.doomed, *planted.edges, *(str(row["version_id"]) for row in versions)}
    tables = superuser.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') "
        "AND NOT relispartition AND relname <> 'audit_log'"
    ).fetchall()
    for table in tables:
        for row in superuser.execute(f"SELECT x::text AS said FROM {table['relname']} x".encode()).fetchall():
            assert not [found for found in gone if found in row["said"]], table["relname"]
            assert planted.name.lower() + "x" in row["said"].lower() or planted.name.lower() not in row["said"].lower()
    for kept in [*planted.kept, planted.kept_edge]:
        assert objects.levels(kept) == {0}
    line = objects.one(
        "SELECT details FROM audit_log WHERE event_type = 'erasure_completed' AND details ->> 'entity_id' = %s",
        planted.entity_id,
    )
    assert line["details"]["objects"] == len(planted.doomed)


def test_erased_in_the_shared_scope_alone_the_entity_stays_without_its_object(
    objects: Objects, planted: Planted, robin: httpx.Client, admin: httpx.Client, worker: None
) -> None:
    other = entity(robin, name())
    objects.bind(other, planted.bound)
    until_erased(admin, tombstone(admin, planted.name, scope="project_shared", erase=True))
    for gone in [*planted.doomed, *planted.edges]:
        assert objects.levels(gone) == set()
    for left in (planted.entity_id, other):
        answer = robin.get(f"/v1/entities/{left}")
        assert (answer.status_code, answer.json()["object_canonical_id"]) == (200, None)
    assert objects.rows("SELECT FROM graph_entities WHERE object_canonical_id = %s", planted.bound) == []


def test_what_came_to_name_it_after_the_tombstone_is_erased_too(
    objects: Objects, planted: Planted, admin: httpx.Client, worker: None
) -> None:
    tombstone(admin, planted.name)
    late = objects.put(f"{planted.name} came late")
    assert objects.levels(late) == {0}, "as a note that only names it"
    until_erased(admin, tombstone(admin, planted.name, erase=True))
    assert objects.levels(late) == set()


def test_a_hold_on_another_entity_of_an_object_blocks_its_erasure(
    objects: Objects, planted: Planted, robin: httpx.Client, admin: httpx.Client
) -> None:
    held = name()
    held_id = entity(robin, held)
    keeper = objects.put("stands for the held one")
    objects.bind(held_id, keeper)
    objects.relate(planted.bound, keeper, type="knows")
    hold = tombstone(admin, held, legal_hold=True)
    answer = admin.post("/v1/tombstones", json={"entity": planted.name, "reason": "x", "erase": True})
    assert error(answer) == (409, "legal_hold_active")
    assert answer.json()["error"]["details"]["tombstone_id"] == hold["tombstone_id"]
    assert objects.levels(planted.bound) == {0}
    revoke(admin, hold)


def test_a_hold_in_another_project_keeps_an_object_of_none(
    objects: Objects, planted: Planted, elsewhere: httpx.Client, keys: dict[str, str], as_key: Any, admin: httpx.Client
) -> None:
    there = as_key(keys["admin"], "other")
    held = name()
    objects.bind(entity(elsewhere, held), planted.shared)
    objects.bind(planted.entity_id, planted.shared)
    hold = tombstone(there, held, legal_hold=True)
    answer = admin.post("/v1/tombstones", json={"entity": planted.name, "reason": "x", "erase": True})
    assert error(answer) == (409, "legal_hold_active")
    revoke(there, hold)
    assert objects.levels(planted.shared) == {0}


def test_a_note_that_names_an_object_is_no_reason(objects: Objects, robin: httpx.Client, admin: httpx.Client) -> None:
    who = name()
    entity(robin, who)
    note(robin, content=f"{who} and {new('thing')}")
    kept = objects.put("a thing")
    tombstone(admin, who)
    assert objects.levels(kept) == {0}
