"""Lint: each reason by a row that has it and one that does not, pages, time limits, and what it does not tell."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from app.access import Principal, new_id
from app.db.database import Database
from app.maintenance.lint import service
from app.maintenance.lint.schemas import CHECKS, LintReport
from app.maintenance.lint.service import RULES, LintLimits
from app.paging import CursorSigner, Page
from tests.conftest import TestDatabase
from tests.erasure.shared import tombstone
from tests.facts.shared import entity, error, fact, new, note, predicate, write
from tests.maintenance.conftest import World, days

pytestmark = pytest.mark.anyio

ADMIN: dict[str, Any] = {"key_id": "k", "kind": "admin", "scopes": frozenset({"admin"}), "agent_id": "admin"}
VECTOR = f"[{','.join(['0'] * 383)},1]"


def page(who: Principal, *, limit: int = 200, cursor: str | None = None) -> Page:
    return Page(CursorSigner(b"secret"), who, "lint", limit=limit, cursor=cursor)


def found(report: LintReport) -> dict[str, set[str]]:
    """The ids found, by reason."""
    reasons: dict[str, set[str]] = {}
    for item in report.findings:
        reasons.setdefault(item.reason, set()).add(str(item.id))
    return reasons


class Place:
    """A project of its own with rows as they should not be."""

    def __init__(self, world: World, tenant: str) -> None:
        world.project(tenant)
        self.world, self.tenant = world, tenant
        self.who = Principal(tenant_id=tenant, project_id="default", **ADMIN)
        self.plain = self.predicate("active", "multi")

    def predicate(self, status: str, cardinality: str) -> str:
        predicate_id, name = new_id(), f"p {uuid4().hex[:10]}"
        self.world.insert(
            "graph_predicates", tenant_id=self.tenant, predicate_id=predicate_id, scope_key=f"{self.tenant}:default",
            project_id="default", canonical=name, canonical_norm=name, status=status, cardinality=cardinality,
            created_at=days(50), updated_at=days(50),
        )  # fmt: skip
        return predicate_id

    def fact(self, subject: str | None = None, *, evidence: str | None = None, **fields: Any) -> str:
        fact_id = new_id()
        row = {
            "agent_id": "robin", "scope": "project_shared", "owner_key": "", "predicate": "p",
            "predicate_id": self.plain, "object_value": "v", "object_hash": uuid4().bytes, "value_type": "string",
            "confidence": 1, "source_trust": 1, "fact_hash": uuid4().bytes, "hlc": "", "single_valued": False,
            "valid_from": days(1), "created_at": days(1), "updated_at": days(1), **fields,
        }  # fmt: skip
        row["subject_entity_id"] = subject or self.world.entity(self.tenant)
        self.world.insert("graph_facts", tenant_id=self.tenant, project_id="default", fact_id=fact_id, **row)
        if evidence is not None:
            self.world.insert(
                "graph_fact_evidence", tenant_id=self.tenant, project_id="default", evidence_id=new_id(),
                fact_id=fact_id, note_id=evidence, created_at=days(1),
            )  # fmt: skip
        return fact_id

    def used(self) -> str:
        """An entity that a fact refers to."""
        made = self.world.entity(self.tenant)
        self.fact(made)
        return made

    def vector(self, kind: str, owner: str) -> None:
        self.world.insert(
            "embeddings", tenant_id=self.tenant, project_id="default", owner_kind=kind, owner_id=owner, view="self",
            model_id=1, agent_id="robin", scope="project_shared", text_hash=b"x", embedded_at=days(1), vector=VECTOR,
        )  # fmt: skip

    def card(self, entity_id: str, built: float) -> str:
        card_id = new_id()
        self.world.insert(
            "memory_cards", tenant_id=self.tenant, project_id="default", card_id=card_id, entity_id=entity_id,
            scope="project_shared", agent_id="robin", owner_key="", content="", facts=1, omitted=0,
            built_at=days(built),
        )  # fmt: skip
        return card_id


@pytest.fixture
def place(world: World, tenant: str) -> Place:
    return Place(world, tenant)


async def look(db: Database, place: Place, *checks: Any) -> dict[str, set[str]]:
    report = await service.lint(db, place.who, checks=checks or CHECKS, page=page(place.who))
    assert not report.truncated
    assert isinstance(report.counts, list)
    reasons = found(report)
    assert {item.reason: item.count for item in report.counts if item.count} == {
        reason: len(ids) for reason, ids in reasons.items()
    }
    return reasons


async def test_a_sound_project_has_no_findings(db: Database, place: Place) -> None:
    told = place.world.note(place.tenant)
    place.vector("fact", place.fact(evidence=told))
    place.vector("note", told)
    assert await look(db, place) == {}


async def test_stale(db: Database, place: Place) -> None:
    world, tenant = place.world, place.tenant
    policy = {"tenant_id": tenant, "project_id": "default", "exempt_relations": [], "created_by": "x"}
    short, long = place.predicate("active", "multi"), place.predicate("active", "multi")
    for chosen, fields in (
        (short, {"mode": "retract", "ttl_s": 86400}),
        (long, {"mode": "confidence", "half_life_s": 864000}),
    ):
        name = world.one("SELECT canonical_norm FROM graph_predicates WHERE predicate_id = %s", chosen)
        world.insert(
            "decay_policies", policy_id=new_id(), relation=name, scope="*", min_confidence=0, created_at=days(50),
            **policy, **fields,
        )  # fmt: skip
    decayed = {
        place.fact(predicate_id=short, created_at=days(2)),
        place.fact(predicate_id=long, created_at=days(11)),
    }
    place.fact(predicate_id=short, created_at=days(0.5))
    place.fact(predicate_id=long, created_at=days(9))
    old: dict[str, Any] = {"valid_from": days(400), "created_at": days(380)}
    unconfirmed = place.fact(**old)
    place.fact(**old, mentions=2)
    place.fact(**old, valid_to=days(300))
    place.fact(**old, retracted_at=days(1), confidence=0)
    place.fact(valid_from=days(400), created_at=days(300))
    aged, changed = place.card(place.used(), 1.5), place.card(place.used(), 0.5)
    entity_id = world.entity(tenant)
    place.fact(entity_id, updated_at=days(0.2))
    outdated = place.card(entity_id, 0.5)
    pending = world.note(tenant, extraction_status="pending", updated_at=days(2))
    world.note(tenant, extraction_status="pending", updated_at=days(0.5))
    world.note(tenant, extraction_status="pending", updated_at=days(2), deleted_at=days(1))
    reasons = await look(db, place, "stale")
    assert changed not in reasons["card_stale"]
    assert reasons == {
        "fact_decayed": decayed,
        "fact_unconfirmed": {unconfirmed},
        "card_stale": {aged, outdated},
        "extraction_pending": {pending},
    }


async def test_orphaned(db: Database, place: Place) -> None:
    world, tenant = place.world, place.tenant
    live, gone, purged = (
        world.note(tenant),
        world.note(tenant, deleted_at=days(1)),
        world.note(tenant, deleted_at=days(40)),
    )
    alone, mentioned, forgotten = world.entity(tenant), world.entity(tenant), world.entity(tenant)
    place.fact(object_value=None, object_entity_id=place.used(), value_type="entity")
    world.mention(tenant, live, mentioned)
    world.mention(tenant, gone, forgotten)
    world.mention(tenant, purged, place.used())
    unsupported = {place.fact(evidence=gone), place.fact(source="pipeline")}
    place.fact(evidence=live, source="pipeline")
    place.fact(evidence=gone, retracted_at=days(1))
    lost = [str(uuid4()) for _ in range(3)]
    for kind, owner in zip(("fact", "card", "object"), lost, strict=True):
        place.vector(kind, owner)
    place.vector("note", gone)
    place.vector("note", live)
    thing = new_id()
    world.insert(
        "object_entity_mentions", tenant_id=tenant, project_id="default", canonical_id=thing, entity_id=place.used(),
        created_at=days(1),
    )  # fmt: skip
    assert await look(db, place, "orphaned") == {
        "entity_unreferenced": {alone, forgotten},
        "fact_unsupported": unsupported,
        "vector_orphaned": {*lost, gone},
        "mention_orphaned": {purged, thing},
    }


async def test_broken_references_of_facts(db: Database, place: Place) -> None:
    ref = place.fact(value_type="ref")
    place.fact(value_type="ref", retracted_at=days(1))
    known = uuid4().bytes
    place.fact(fact_hash=known)
    derived, sound = place.fact(), place.fact()
    for made, hashed in ((derived, known), (derived, uuid4().bytes), (sound, known)):
        place.world.insert(
            "fact_derivations", tenant_id=place.tenant, project_id="default", fact_id=made, source_hash=hashed,
            created_at=days(1),
        )  # fmt: skip
    assert await look(db, place, "broken_references") == {"ref_unlinked": {ref}, "source_unknown": {derived}}


async def test_contradictions(db: Database, place: Place) -> None:
    one, two = place.predicate("active", "single"), place.predicate("active", "single")
    subject, busy = place.world.entity(place.tenant), place.world.entity(place.tenant)
    values = [place.fact(subject, predicate_id=one) for _ in range(2)]
    place.fact(subject, predicate_id=one, valid_to=days(0.5))
    place.fact(subject, predicate_id=two)
    place.fact(predicate_id=one)
    undecided, few = place.predicate("pending", "multi"), place.predicate("pending", "multi")
    many = [place.fact(busy, predicate_id=undecided) for _ in range(5)]
    for _ in range(5):
        place.fact(predicate_id=few)
    conflicts = [new_id() for _ in range(3)]
    for conflict_id, pair, status in zip(
        conflicts, (many[:2], many[1:3], [many[3], values[0]]), ("open", "resolved", "open"), strict=True
    ):
        place.world.insert(
            "fact_conflicts", tenant_id=place.tenant, project_id="default", conflict_id=conflict_id, fact_a=pair[0],
            fact_b=pair[1], status=status, detected_at=days(1),
        )  # fmt: skip
    assert await look(db, place, "contradictions") == {
        "conflict_open": {conflicts[0], conflicts[2]},
        "several_values": {max(values)},
        "predicate_undecided": {undecided},
    }


async def test_pages_have_every_finding_once(db: Database, place: Place) -> None:
    expected = {place.world.entity(place.tenant) for _ in range(5)}
    refs = {place.fact(place.used(), value_type="ref") for _ in range(3)}
    seen: list[tuple[str, UUID]] = []
    cursor = None
    pages = 0
    while True:
        asked = page(place.who, limit=3, cursor=cursor)
        report = await service.lint(db, place.who, page=asked)
        assert isinstance(report.counts, list) == (cursor is None)
        assert len(report.findings) == (3 if report.next_cursor else 2)
        seen += [(item.reason, item.id) for item in report.findings]
        pages += 1
        if (cursor := report.next_cursor) is None:
            break
    assert (pages, len(seen)) == (3, 8)
    order = [rule.reason for rule in RULES]
    assert seen == sorted(seen, key=lambda item: (order.index(item[0]), item[1]))
    assert {str(found) for _, found in seen} == expected | refs


async def test_a_check_that_takes_too_long_is_stopped_and_told(
    db: Database, place: Place, database: TestDatabase
) -> None:
    ref = place.fact(value_type="ref")
    with psycopg.connect(database.superuser) as held:
        held.execute("LOCK TABLE fact_conflicts IN ACCESS EXCLUSIVE MODE")
        report = await service.lint(db, place.who, page=page(place.who), limits=LintLimits(rule_seconds=0.5))
    assert isinstance(report.counts, list)
    assert report.truncated
    assert [item.reason for item in report.counts if item.truncated] == ["conflict_open"]
    assert found(report)["ref_unlinked"] == {ref}
    stopped = await service.lint(db, place.who, page=page(place.who), limits=LintLimits(total_seconds=0))
    assert (stopped.truncated, stopped.findings) == (True, [])


async def test_counts_are_bounded(db: Database, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "COUNT_LIMIT", 3)
    monkeypatch.setattr(service, "MAX_COUNTED", 2)
    for _ in range(4):
        place.world.entity(place.tenant)
    report = await service.lint(db, place.who, checks=["orphaned"], page=page(place.who, limit=1))
    assert isinstance(report.counts, list)
    assert [(item.count, item.truncated) for item in report.counts if item.count] == [(2, True)]
    assert report.truncated


def reported(admin: httpx.Client, **body: Any) -> set[str]:
    """All ids that lint names, related ones too."""
    answer = admin.post("/v1/lint", json={"limit": 200, **body})
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert report["next_cursor"] is None
    return {one for item in report["findings"] for one in (item["id"], *item["related"])}


def test_objects_entities_and_evidence_that_name_nothing(robin: httpx.Client, admin: httpx.Client) -> None:
    told, nothing = note(robin), new_id()

    def made(**fields: Any) -> str:
        answer = robin.post("/v1/graph/objects", json={"type": "Thing", **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()["object"]["canonical_id"]

    sound = made(evidence=[told, entity(robin)["entity_id"], str(uuid4()), "a text"])
    broken = made(evidence={"notes": [{"id": nothing}, told]})
    answer = robin.post("/v1/graph/relationships", json={"type": "near", "src_id": sound, "dst_id": broken})
    assert answer.status_code == 201, answer.text
    ids = reported(admin, checks=["broken_references"])
    assert {broken, nothing} <= ids
    assert not {sound, told, answer.json()["relationship"]["canonical_id"]} & ids


def test_objects_that_are_gone(robin: httpx.Client, admin: httpx.Client, superuser: psycopg.Connection[Any]) -> None:
    ends = [robin.post("/v1/graph/objects", json={"type": "Thing"}).json()["object"]["canonical_id"] for _ in range(3)]
    edges = [
        robin.post("/v1/graph/relationships", json={"type": "near", "src_id": ends[0], "dst_id": end}).json()
        for end in ends[1:]
    ]
    loose, sound = (edge["relationship"]["canonical_id"] for edge in edges)
    bound = entity(robin)["entity_id"]
    assert robin.put(f"/v1/entities/{bound}/object", json={"object_id": ends[1]}).status_code == 200
    superuser.execute("UPDATE graph_objects SET deleted_at = now() WHERE canonical_id = %s", (ends[1],))
    ids = reported(admin, checks=["broken_references"])
    assert {loose, bound, ends[1]} <= ids
    assert sound not in ids


def test_what_is_hidden_is_not_told(robin: httpx.Client, admin: httpx.Client) -> None:
    secret, gone, kept = new("secret"), new("gone"), new("kept")
    undecided = new("undecided")
    private = [write(robin, secret, undecided, value, scope="agent_private") for value in ("one", "two")]
    hidden = [write(robin, gone, undecided, value) for value in ("one", "two")]
    shown = [write(robin, kept, undecided, value) for value in ("one", "two")]
    cited = note(robin, scope="agent_private")
    citing = fact(robin, new(), new(), "x", evidence=[cited])["fact_id"]
    tombstone(admin, gone)
    ids = reported(admin)
    for items, told in ((private, False), (hidden, False), (shown, True)):
        assert {one["fact"]["fact_id"] for one in items} <= ids if told else True
        if not told:
            assert not {one["fact"]["fact_id"] for one in items} & ids
            assert not {conflict for one in items for conflict in one["conflicts"]} & ids
    assert hidden[0]["fact"]["subject"]["entity_id"] not in ids
    assert not {cited, citing} & ids, "evidence that the caller cannot see is no missing evidence"


def test_who_may_lint_and_what_is_refused(
    robin: httpx.Client, admin: httpx.Client, rival: httpx.Client, as_key: Callable[..., httpx.Client]
) -> None:
    assert error(robin.post("/v1/lint", json={}))[0] == 403
    assert admin.post("/v1/lint").status_code == 200
    for body in ({"checks": ["everything"]}, {"checks": []}, {"limit": 0}, {"limit": 201}, {"fast": True}):
        assert error(admin.post("/v1/lint", json=body))[0] == 400, body
    assert error(admin.post("/v1/lint", json={"cursor": "x"})) == (400, "cursor_invalid")
    first = admin.post("/v1/lint", json={"checks": ["orphaned"], "limit": 1}).json()
    while len(reported(admin, checks=["orphaned"])) < 2:
        entity(robin)
        first = admin.post("/v1/lint", json={"checks": ["orphaned"], "limit": 1}).json()
    other = {"checks": ["stale"], "limit": 1, "cursor": first["next_cursor"]}
    assert error(admin.post("/v1/lint", json=other)) == (400, "cursor_invalid")
    assert predicate(robin)["predicate_id"] not in reported(admin), "without facts it is undecided, not contradictory"
