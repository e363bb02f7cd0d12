"""Backfill creates objects and relationships once, also when it is interrupted or runs twice."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from app.db.database import Database
from app.main import open_database
from app.objects.entity_links.backfill import BackfillResult, backfill
from tests.conftest import Tenancy, TestDatabase
from tests.erasure.shared import tombstone
from tests.facts.conftest import UNLIMITED
from tests.facts.shared import entity, fact, new, year
from tests.objects.entity_links.shared import Objects, Superuser
from tests.service import palimpsest


@pytest.fixture
def place(tenancy: Tenancy, keys: dict[str, str], as_key: Any, superuser: Superuser) -> "Place":
    tenant = f"t{new('x').split()[1]}"
    tenancy.tenant(tenant, "default", "other")
    robin = as_key(tenancy.key(tenant, agent_id="robin", rate_limits=UNLIMITED))
    admin = as_key(tenancy.key(tenant, kind="admin", rate_limits=UNLIMITED), "default")
    return Place(tenancy.database, tenant, robin, admin, Objects(superuser, tenant=tenant))


class Place:
    """A tenant for one test, and its content."""

    def __init__(
        self, database: TestDatabase, tenant: str, robin: httpx.Client, admin: httpx.Client, objects: Objects
    ) -> None:
        self.database, self.tenant, self.robin, self.admin, self.objects = database, tenant, robin, admin, objects

    def run(self, **options: Any) -> BackfillResult:
        async def work() -> BackfillResult:
            db: Database = open_database(self.database.settings())
            await db.open()
            try:
                return await backfill(db, tenant_id=self.tenant, project_id="default", **options)
            finally:
                await db.close()

        return asyncio.run(work())

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.objects.rows(f"SELECT * FROM {table} WHERE tenant_id = %s ORDER BY 3, 4", self.tenant)

    def command(self, *options: str) -> Any:
        arguments = ("objects", "backfill", "--tenant", self.tenant, "--project", "default", *options)
        return palimpsest(*arguments, DATABASE_URL=self.database.url("app"))


def test_at_p0_5_backfill_twice_makes_nothing_new(place: Place) -> None:
    ada = entity(place.robin, "Ada Lovelace", kind="person", aliases=["Countess of Lovelace"])
    engine = entity(place.robin, "Analytical Engine")
    made = fact(
        place.robin,
        "Ada Lovelace",
        "programmed",
        {"entity": "Analytical Engine"},
        confidence=0.75,
        valid_from=year(1843),
    )
    expected = BackfillResult(objects=2, bound=0, relationships=1, dry_run=True)
    assert place.run(dry_run=True) == expected
    assert place.rows("graph_objects") == []
    assert place.run() == BackfillResult(objects=2, relationships=1)
    by_title = {row["title"]: row for row in place.rows("graph_objects")}
    row = by_title["Ada Lovelace"]
    assert (row["type"], row["key"], row["labels"]) == ("person", "ada lovelace", [])
    assert row["properties"] == {"aliases": ["Countess of Lovelace"]}
    assert (row["version"], row["project_id"], row["schema_version"]) == (1, "default", None)
    assert "countess" in row["terms"]
    assert row["embed_text"] == "Ada Lovelace, Countess of Lovelace"
    assert by_title["Analytical Engine"]["type"] == "Entity"
    bound = {name: place.robin.get(f"/v1/entities/{one['entity_id']}").json()["object_canonical_id"]
             for name, one in (("ada", ada), ("engine", engine))}  # fmt: skip
    assert bound == {"ada": str(row["canonical_id"]), "engine": str(by_title["Analytical Engine"]["canonical_id"])}
    (edge,) = place.rows("graph_relationships")
    assert (str(edge["src_id"]), str(edge["dst_id"])) == (bound["ada"], bound["engine"])
    assert (edge["type"], edge["weight"], edge["valid_to"]) == ("programmed", 0.75, None)
    assert edge["valid_from"].isoformat()[:10] == made["valid_from"][:10] == "1843-01-01"
    for head, versions in (("graph_objects", "graph_object_versions"),
                           ("graph_relationships", "graph_relationship_versions")):  # fmt: skip
        said = [{key: old[key] for key in old if key in new_ and key != "created_at"}
                for old, new_ in zip(place.rows(versions), place.rows(head), strict=True)]  # fmt: skip
        assert said == [{key: row[key] for key in said[0]} for row in place.rows(head)]
    queued = place.objects.rows(
        "SELECT DISTINCT owner_id::text FROM embedding_queue WHERE owner_kind = 'object' AND tenant_id = %s",
        place.tenant,
    )
    assert {row["owner_id"] for row in queued} == set(bound.values())

    before = [place.rows(name) for name in ("graph_objects", "graph_object_versions", "graph_relationships")]
    assert place.run(dry_run=True) == BackfillResult(dry_run=True)
    assert place.run() == BackfillResult()
    assert [place.rows(name) for name in ("graph_objects", "graph_object_versions", "graph_relationships")] == before
    events = place.objects.rows(
        "SELECT details FROM audit_log WHERE tenant_id = %s AND details ->> 'action' = 'objects_backfill'", place.tenant
    )
    assert [row["details"] for row in events] == [
        {"action": "objects_backfill", "objects": 2, "bound": 0, "relationships": 1}
    ]


def test_only_what_everybody_may_read_and_what_stands_becomes_a_relationship(place: Place) -> None:
    robin = place.robin
    now = datetime.now(UTC)
    fact(robin, "a", "private", {"entity": "b"}, scope="agent_private")
    fact(robin, "a", "over", {"entity": "b"}, valid_from=year(2000), valid_to=year(2001))
    fact(robin, "a", "to come", {"entity": "b"}, valid_from=(now + timedelta(days=9)).isoformat())
    taken = fact(robin, "a", "retracted", {"entity": "b"})
    robin.post(f"/v1/facts/{taken['fact_id']}/retract", json={})
    fact(robin, "a", "itself", {"entity": "a"})
    fact(robin, "a", "literal", "value")
    garden = robin.post("/v1/gardens", json={"slug": new("g").replace(" ", "")})
    garden_id = garden.json()["garden"]["garden_id"]
    fact(robin, "a", "in a garden", {"entity": "b"}, garden_id=garden_id)
    end = (now + timedelta(days=30)).replace(microsecond=0)
    fact(robin, "a", "stands", {"entity": "b"}, valid_to=end.isoformat())
    fact(robin, "a", "stands", {"entity": "b"}, scope="org_shared")
    assert place.run(dry_run=True) == BackfillResult(objects=2, relationships=1, dry_run=True)
    assert place.run() == BackfillResult(objects=2, relationships=1)
    assert [row["type"] for row in place.rows("graph_relationships")] == ["stands"]
    assert place.run() == BackfillResult()


def test_what_is_hidden_or_merged_is_left_out(place: Place) -> None:
    kept, gone = entity(place.robin, "kept"), entity(place.robin, "gone")
    place.robin.post(f"/v1/entities/{gone['entity_id']}/merge", json={"into": kept["entity_id"]})
    entity(place.robin, "Hidden One")
    entity(place.robin, "Half Hidden")
    fact(place.robin, "kept", "knows", {"entity": "Hidden One"})
    fact(place.robin, "kept", "knows", {"entity": "Half Hidden"}, scope="org_shared")
    tombstone(place.admin, "Hidden One")
    tombstone(place.admin, "Half Hidden", scope="project_shared")
    assert place.run(dry_run=True) == BackfillResult(objects=1, dry_run=True)
    assert place.run() == BackfillResult(objects=1)
    assert [row["title"] for row in place.rows("graph_objects")] == ["kept"]


def test_an_object_of_that_type_and_key_is_bound_instead_of_doubled(place: Place) -> None:
    one = entity(place.robin, "Ada", kind="person")
    there = place.objects.put("written by hand", type="person", key="ada")
    assert place.run(dry_run=True) == BackfillResult(bound=1, dry_run=True)
    assert place.run() == BackfillResult(bound=1)
    assert place.robin.get(f"/v1/entities/{one['entity_id']}").json()["object_canonical_id"] == there
    assert len(place.rows("graph_objects")) == 1


def test_what_somebody_deleted_is_not_made_again(place: Place) -> None:
    fact(place.robin, "a", "knows", {"entity": "b"})
    assert place.run() == BackfillResult(objects=2, relationships=1)
    place.objects.superuser.execute(
        "UPDATE graph_relationships SET deleted_at = now() WHERE tenant_id = %s", (place.tenant,)
    )
    assert place.run() == BackfillResult()
    place.objects.superuser.execute("UPDATE graph_objects SET deleted_at = now() WHERE tenant_id = %s", (place.tenant,))
    assert place.run(dry_run=True) == BackfillResult(dry_run=True)
    assert place.run() == BackfillResult()


def test_stopped_in_the_middle_it_goes_on(place: Place) -> None:
    for number in range(7):
        fact(place.robin, f"one {number}", "next", {"entity": f"one {number + 1}"})

    class Killed(Exception):
        pass

    def die(_: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        place.run(batch_size=3, report=die)
    assert len(place.rows("graph_objects")) == 3
    assert place.run(batch_size=3) == BackfillResult(objects=5, relationships=7)
    assert place.run(batch_size=3) == BackfillResult()


def test_two_at_once_make_everything_once(place: Place) -> None:
    for number in range(20):
        fact(place.robin, f"one {number}", "next", {"entity": f"one {number + 1}"})

    async def both() -> list[BackfillResult]:
        db = open_database(place.database.settings())
        await db.open()
        try:
            runs = (backfill(db, tenant_id=place.tenant, project_id="default", batch_size=4) for _ in range(2))
            return await asyncio.gather(*runs)
        finally:
            await db.close()

    done = asyncio.run(both())
    assert sum(one.objects for one in done) == 21
    place.run()
    assert len(place.rows("graph_relationships")) == 20
    assert place.run() == BackfillResult()


def test_a_type_that_allows_one_keeps_one(place: Place) -> None:
    place.objects.superuser.execute(
        "INSERT INTO relationship_type_schemas (tenant_id, type, version, status, created_by, created_at, "
        "allowed_src_types, allowed_dst_types, multiplicity_src, multiplicity_dst) "
        "VALUES (%s, 'leads', 1, 'active', 'x', now(), '{}', '{}', 'many', 'one')",
        (place.tenant,),
    )
    fact(place.robin, "a", "leads", {"entity": "team"})
    fact(place.robin, "b", "leads", {"entity": "team"})
    assert place.run() == BackfillResult(objects=3, relationships=1)
    (edge,) = place.rows("graph_relationships")
    assert (edge["one_src"], edge["one_dst"]) == (False, True)
    assert place.run() == BackfillResult()


def test_the_command_says_what_it_did(place: Place) -> None:
    fact(place.robin, "a", "knows", {"entity": "b"})
    dry = place.command("--dry-run")
    assert dry.stdout.startswith("would create 2 objects and 1 relationships"), dry.stderr
    done = place.command("--json")
    assert json.loads(done.stdout) == {"objects": 2, "bound": 0, "relationships": 1, "dry_run": False}
    assert place.command().stdout.startswith("nothing to do")
    unknown = palimpsest(
        *("objects", "backfill", "--tenant", place.tenant, "--project", "nowhere"),
        DATABASE_URL=place.database.url("app"),
    )
    assert (unknown.returncode, "no such project" in unknown.stderr) == (1, True)
    assert "safe to repeat" in palimpsest("objects", "backfill", "--help").stdout
