"""The call examples, the invariants and the constraints of the specification of facts, each as a test of its name."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg import sql

from app.facts.names import normalize_entity_name
from tests.facts.shared import body, entity, error, fact, history, ids, listed, new, note, predicate, read, write, year

Superuser = psycopg.Connection[dict[str, Any]]


# Call examples


def test_normalize_entity_name_example(robin: httpx.Client) -> None:
    assert normalize_entity_name("  Alice   Example ") == "alice example"
    made = robin.post("/v1/entities", json={"canonical": "  Alice   Example "}).json()["entity"]
    assert made["canonical"] == "Alice Example"
    assert robin.get("/v1/entities/alice example").json()["entity_id"] == made["entity_id"]


def test_upsert_entity_example_is_idempotent(robin: httpx.Client) -> None:
    first = robin.post("/v1/entities", json={"canonical": "Grace Example", "kind": "person"})
    assert (first.status_code, first.json()["created"]) == (201, True)
    for name in ("Grace Example", "grace example", " GRACE \t EXAMPLE\n", "Grace\u00a0Example"):
        again = robin.post("/v1/entities", json={"canonical": name, "kind": "person"})
        assert (again.status_code, again.json()["created"]) == (200, False)
        assert again.json()["entity"] == first.json()["entity"]


def test_upsert_entity_alias_example(robin: httpx.Client) -> None:
    made = entity(robin, kind="person")
    short = f"A. {new()}"
    path = f"/v1/entities/{made['entity_id']}/aliases"
    first = robin.post(path, json={"alias": short})
    assert (first.status_code, first.json()["created"], first.json()["alias"]["alias"]) == (201, True, short)
    again = robin.post(path, json={"alias": f"  {short.upper()} "})
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert again.json()["alias"]["alias_id"] == first.json()["alias"]["alias_id"]
    assert robin.get(f"/v1/entities/{short}").json()["entity_id"] == made["entity_id"]


def test_resolve_or_register_predicate_example(robin: httpx.Client) -> None:
    first = fact(robin, new(), "connected_to", {"entity": new()})["predicate"]
    assert (first["name"], first["status"], first["cardinality"]) == ("connected_to", "pending", "multi")
    again = fact(robin, new(), " Connected_To ", {"entity": new()})["predicate"]
    assert again == first


def test_insert_fact_with_evidence_example(robin: httpx.Client, superuser: Superuser) -> None:
    notes = [note(robin), note(robin)]
    subject, target = entity(robin), entity(robin)
    moment = datetime.now(UTC).isoformat()
    answer = robin.post(
        "/v1/facts",
        json={
            "subject": {"entity_id": subject["entity_id"]},
            "predicate": "connected_to",
            "object": {"entity": {"entity_id": target["entity_id"]}},
            "scope": "project_shared",
            "valid_from": moment,
            "valid_to": None,
            "evidence": notes,
        },
    )
    assert answer.status_code == 201
    made = answer.json()["fact"]
    row = superuser.execute(
        "SELECT tenant_id, project_id, agent_id, scope, subject_entity_id::text AS subject, predicate, "
        "predicate_id::text AS predicate_id, object_entity_id::text AS object, object_value, valid_from, valid_to "
        "FROM graph_facts WHERE fact_id = %s",
        (made["fact_id"],),
    ).fetchone()
    assert row == {
        "tenant_id": "acme",
        "project_id": "default",
        "agent_id": "robin",
        "scope": "project_shared",
        "subject": subject["entity_id"],
        "predicate": "connected_to",
        "predicate_id": made["predicate"]["predicate_id"],
        "object": target["entity_id"],
        "object_value": None,
        "valid_from": datetime.fromisoformat(moment),
        "valid_to": None,
    }
    assert sorted(made["evidence"]) == sorted(notes)


def test_fetch_active_facts_for_subject_example(robin: httpx.Client) -> None:
    subject, name = entity(robin), predicate(robin)["name"]
    moment = datetime.now(UTC)
    place = {"entity_id": subject["entity_id"]}
    active = {
        fact(robin, place, name, 1, valid_from=year(2020))["fact_id"],
        fact(robin, place, name, 2, valid_from=year(2020), valid_to=year(2999))["fact_id"],
        fact(robin, place, name, 3, valid_from=moment.isoformat())["fact_id"],
    }
    fact(robin, place, name, 4, valid_from=year(2020), valid_to=year(2021))
    fact(robin, place, name, 5, valid_from=year(2999))
    fact(robin, place, name, 6, valid_from=year(2020), valid_to=moment.isoformat())
    fact(robin, place, name, 7, scope="org_shared")
    fact(robin, new(), name, 8)
    found = listed(robin, entity=subject["entity_id"], scope="project_shared", valid_at=moment.isoformat())
    assert set(ids(found)) == active


# Invariants


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        ("  x  ", "x"),
        ("a \t\r\n b", "a b"),
        ("A\u00a0\u2003B", "a b"),
        ("ÀÉ", "àé"),
        ("e\u0301", "é"),
        ("STRASSE", "strasse"),
    ],
)
def test_canonical_norm_is_trimmed_collapsed_and_lower_case(
    robin: httpx.Client, superuser: Superuser, name: str, norm: str
) -> None:
    tag = uuid4().hex[:8]
    made = entity(robin, f"{name} {tag}")
    row = superuser.execute("SELECT canonical_norm FROM graph_entities WHERE entity_id = %s", (made["entity_id"],))
    assert row.fetchall() == [{"canonical_norm": f"{norm} {tag}"}]


def test_an_active_fact_has_begun_and_not_ended(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin)["name"]
    made = fact(robin, subject, name, "tea", valid_from=year(2020), valid_to=year(2021))
    last = "2020-12-31T23:59:59.999999Z"
    for moment, active in (("2019-12-31T23:59:59.999999Z", False), (year(2020), True), (last, True)):
        assert (ids(listed(robin, entity=subject, valid_at=moment)) == [made["fact_id"]]) is active
    assert listed(robin, entity=subject, valid_at=year(2021)) == []


def test_a_reintroduced_note_reuses_the_row_and_appends_evidence(robin: httpx.Client, superuser: Superuser) -> None:
    subject, name, target = new(), predicate(robin)["name"], {"entity": new()}
    notes = [note(robin) for _ in range(3)]
    answers = [write(robin, subject, name, target, evidence=[cited]) for cited in notes]
    assert [item["outcome"] for item in answers] == ["created", "reused", "reused"]
    assert answers[2]["fact"]["evidence"] == notes
    found = superuser.execute(
        "SELECT count(*) AS facts FROM graph_facts WHERE predicate_id = %s",
        (answers[0]["fact"]["predicate"]["predicate_id"],),
    ).fetchone()
    assert found == {"facts": 1}


@contextmanager
def refused(superuser: Superuser, violation: type[psycopg.Error], constraint: str) -> Generator[None]:
    with pytest.raises(violation) as problem, superuser.transaction():
        yield
    assert problem.value.diag.constraint_name is not None
    assert constraint in problem.value.diag.constraint_name


def copy(superuser: Superuser, table: str, key: str, row_id: str, **changes: Any) -> None:
    """Inserts a row again under a new id, with some columns changed."""
    generated = superuser.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped "
        "AND attgenerated = ''",
        (table,),
    ).fetchall()
    columns = [row["attname"] for row in generated]
    changes = {key: str(uuid4()), **changes}
    chosen = [sql.Placeholder(name) if name in changes else sql.Identifier(name) for name in columns]
    superuser.execute(
        sql.SQL("INSERT INTO {table} ({columns}) SELECT {chosen} FROM {table} WHERE {key} = {row_id}").format(
            table=sql.Identifier(table),
            columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
            chosen=sql.SQL(", ").join(chosen),
            key=sql.Identifier(key),
            row_id=sql.Literal(row_id),
        ),
        changes,
    )


def test_active_duplicate_prevention_is_enforced_by_partial_unique_indexes(
    robin: httpx.Client, superuser: Superuser
) -> None:
    name = predicate(robin)["name"]
    pointing = fact(robin, new(), name, {"entity": new()})["fact_id"]
    saying = fact(robin, new(), name, "tea")["fact_id"]
    for fact_id, index in ((pointing, "graph_facts_open_entity_key"), (saying, "graph_facts_open_value_key")):
        with refused(superuser, psycopg.errors.UniqueViolation, index):
            copy(superuser, "graph_facts", "fact_id", fact_id)
        ended = datetime.now(UTC) + timedelta(days=1)
        copy(superuser, "graph_facts", "fact_id", fact_id, valid_to=ended)
        copy(superuser, "graph_facts", "fact_id", fact_id, retracted_at=ended)
        copy(superuser, "graph_facts", "fact_id", fact_id, scope="public")
        copy(superuser, "graph_facts", "fact_id", fact_id, owner_key="another garden")


def test_one_open_value_of_a_single_valued_predicate_is_enforced_by_an_index(
    robin: httpx.Client, superuser: Superuser
) -> None:
    made = fact(robin, new(), predicate(robin, cardinality="single")["name"], "tea")["fact_id"]
    with refused(superuser, psycopg.errors.UniqueViolation, "graph_facts_open_single_key"):
        copy(superuser, "graph_facts", "fact_id", made, object_value="milk", object_hash=b"another")


def test_checks_of_facts_are_enforced(robin: httpx.Client, superuser: Superuser) -> None:
    made = fact(robin, new(), new(), "tea", valid_from=year(2020))
    fact_id, start = made["fact_id"], datetime(2020, 1, 1, tzinfo=UTC)
    broken: list[tuple[str, dict[str, Any]]] = [
        ("object", {"object_entity_id": made["subject"]["entity_id"]}),
        ("object", {"object_value": None}),
        ("valid_to", {"valid_to": start}),
        ("valid_to", {"valid_to": start - timedelta(microseconds=1)}),
        ("confidence", {"confidence": 1.01}),
        ("confidence", {"confidence": -0.01}),
        ("confidence", {"confidence": float("nan")}),
        ("scope", {"scope": "everybody"}),
        ("value_type", {"value_type": "list"}),
    ]
    for constraint, changes in broken:
        with refused(superuser, psycopg.errors.CheckViolation, constraint):
            copy(superuser, "graph_facts", "fact_id", fact_id, **{"scope": "public", **changes})


def test_references_do_not_cross_tenants(robin: httpx.Client, rival: httpx.Client, superuser: Superuser) -> None:
    mine = fact(robin, new(), new(), {"entity": new()}, evidence=[note(robin)])
    theirs = fact(rival, new(), new(), {"entity": new()}, evidence=[note(rival)])
    changes: list[tuple[str, dict[str, Any]]] = [
        ("subject_entity_id", {"subject_entity_id": theirs["subject"]["entity_id"]}),
        ("object_entity_id", {"object_entity_id": theirs["object"]["entity"]["entity_id"]}),
        ("predicate_id", {"predicate_id": theirs["predicate"]["predicate_id"]}),
        ("", {"tenant_id": "rival"}),
    ]
    for constraint, changed in changes:
        with refused(superuser, psycopg.errors.ForeignKeyViolation, constraint):
            copy(superuser, "graph_facts", "fact_id", mine["fact_id"], scope="public", **changed)
    (cited,) = superuser.execute(
        "SELECT evidence_id::text AS id FROM graph_fact_evidence WHERE fact_id = %s", (mine["fact_id"],)
    ).fetchall()
    for changed in ({"fact_id": theirs["fact_id"]}, {"note_id": theirs["evidence"][0]}):
        with refused(superuser, psycopg.errors.ForeignKeyViolation, next(iter(changed))):
            copy(superuser, "graph_fact_evidence", "evidence_id", cited["id"], **changed)


# Predicates


def test_predicates_resolve_in_the_project_then_the_tenant_then_the_installation(
    robin: httpx.Client, elsewhere: httpx.Client, admin: httpx.Client, rival: httpx.Client, superuser: Superuser
) -> None:
    name = new("reports to")
    shared = str(uuid4())
    superuser.execute(
        "INSERT INTO global_predicates (predicate_id, canonical, canonical_norm, cardinality, status, created_at, "
        "updated_at) VALUES (%s, %s, %s, 'multi', 'active', now(), now())",
        (shared, name, name),
    )
    assert fact(robin, new(), name, "x")["predicate"]["predicate_id"] == shared
    wide = predicate(admin, name=name, scope="tenant")["predicate_id"]
    assert fact(robin, new(), name, "x")["predicate"]["predicate_id"] == wide
    own = predicate(robin, name=name)["predicate_id"]
    assert fact(robin, new(), name, "x")["predicate"]["predicate_id"] == own
    assert fact(elsewhere, new(), name, "x")["predicate"]["predicate_id"] == wide
    assert fact(rival, new(), name, "x")["predicate"]["predicate_id"] == shared


def test_an_unresolved_predicate_is_registered_in_the_project_as_pending_and_multi(
    robin: httpx.Client, elsewhere: httpx.Client, superuser: Superuser
) -> None:
    name = new("Invented")
    made = fact(robin, new(), name, "x")["predicate"]
    row = superuser.execute(
        "SELECT scope_key, tenant_id, project_id, canonical, canonical_norm, cardinality, status "
        "FROM graph_predicates WHERE predicate_id = %s",
        (made["predicate_id"],),
    ).fetchone()
    assert row == {
        "scope_key": "acme:default",
        "tenant_id": "acme",
        "project_id": "default",
        "canonical": name,
        "canonical_norm": name.lower(),
        "cardinality": "multi",
        "status": "pending",
    }
    assert fact(elsewhere, new(), name, "x")["predicate"]["predicate_id"] != made["predicate_id"]


def test_a_fact_keeps_the_surface_of_its_predicate_and_the_identity_behind_it(
    robin: httpx.Client, superuser: Superuser
) -> None:
    made = predicate(robin)
    alias = new("Called Otherwise")
    robin.post(f"/v1/predicates/{made['predicate_id']}/aliases", json={"alias": alias})
    said = fact(robin, new(), alias, "x")
    assert said["predicate"]["predicate_id"] == made["predicate_id"]
    assert said["predicate"]["name"] == made["name"]
    row = superuser.execute("SELECT predicate FROM graph_facts WHERE fact_id = %s", (said["fact_id"],)).fetchone()
    assert row == {"predicate": alias}


def test_names_are_unique_within_their_scope(robin: httpx.Client, superuser: Superuser) -> None:
    made, named = predicate(robin), entity(robin, aliases=[new("alias")])
    robin.post(f"/v1/predicates/{made['predicate_id']}/aliases", json={"alias": new("alias")})
    predicate_alias = superuser.execute(
        "SELECT alias_id::text AS id FROM graph_predicate_aliases WHERE predicate_id = %s", (made["predicate_id"],)
    ).fetchone()
    entity_alias = superuser.execute(
        "SELECT alias_id::text AS id FROM graph_entity_aliases WHERE entity_id = %s", (named["entity_id"],)
    ).fetchone()
    assert predicate_alias is not None
    assert entity_alias is not None
    for table, key, row_id, constraint in (
        ("graph_predicates", "predicate_id", made["predicate_id"], "graph_predicates_name_key"),
        ("graph_predicate_aliases", "alias_id", predicate_alias["id"], "graph_predicate_aliases_alias_key"),
        ("graph_entities", "entity_id", named["entity_id"], "graph_entities_name_key"),
        ("graph_entity_aliases", "alias_id", entity_alias["id"], "graph_entity_aliases_alias_key"),
    ):
        with refused(superuser, psycopg.errors.UniqueViolation, constraint):
            copy(superuser, table, key, row_id)


# Evidence


def test_evidence_is_unique_for_a_fact_and_a_note(robin: httpx.Client, superuser: Superuser) -> None:
    made = fact(robin, new(), new(), "x", evidence=[note(robin)])
    row = superuser.execute(
        "SELECT evidence_id::text AS id FROM graph_fact_evidence WHERE fact_id = %s", (made["fact_id"],)
    ).fetchone()
    assert row is not None
    with refused(superuser, psycopg.errors.UniqueViolation, "graph_fact_evidence_note_key"):
        copy(superuser, "graph_fact_evidence", "evidence_id", row["id"])


def test_evidence_supersessions_and_edges_go_with_their_fact_and_note(
    robin: httpx.Client, superuser: Superuser
) -> None:
    subject, name = new(), predicate(robin, cardinality="single")["name"]
    old = fact(robin, subject, name, {"entity": new()}, valid_from=year(2020), evidence=[note(robin)])
    cited = note(robin)
    young = fact(robin, subject, name, {"entity": new()}, valid_from=year(2021), evidence=[cited])

    def count(table: str, column: str, value: str) -> int:
        query = sql.SQL("SELECT count(*) AS rows FROM {} WHERE {} = %s")
        row = superuser.execute(query.format(sql.Identifier(table), sql.Identifier(column)), (value,)).fetchone()
        assert row is not None
        return int(row["rows"])

    assert count("graph_fact_supersessions", "note_id", cited) == 1
    superuser.execute("DELETE FROM memory_notes WHERE note_id = %s", (cited,))
    assert count("graph_fact_evidence", "fact_id", young["fact_id"]) == 0
    assert count("graph_fact_supersessions", "to_fact_id", young["fact_id"]) == 0
    assert count("graph_fact_evidence", "fact_id", old["fact_id"]) == 1
    superuser.execute("DELETE FROM graph_facts WHERE fact_id = %s", (old["fact_id"],))
    for table, column in (
        ("graph_fact_evidence", "fact_id"),
        ("entity_edges", "edge_id"),
        ("fact_closings", "fact_id"),
    ):
        assert count(table, column, old["fact_id"]) == 0


# Supersession


def test_supersession_ends_the_open_fact_and_links_it_with_its_note(robin: httpx.Client, superuser: Superuser) -> None:
    subject, name, cited = new(), predicate(robin, cardinality="single")["name"], note(robin)
    old = fact(robin, subject, name, "Bern", valid_from=year(2020))
    young = fact(robin, subject, name, "Basel", valid_from=year(2021), evidence=[cited, note(robin)])
    rows = superuser.execute(
        "SELECT tenant_id, project_id, from_fact_id::text, to_fact_id::text, note_id::text, effective_at "
        "FROM graph_fact_supersessions WHERE from_fact_id = %s",
        (old["fact_id"],),
    ).fetchall()
    assert rows == [
        {
            "tenant_id": "acme",
            "project_id": "default",
            "from_fact_id": old["fact_id"],
            "to_fact_id": young["fact_id"],
            "note_id": cited,
            "effective_at": datetime(2021, 1, 1, tzinfo=UTC),
        }
    ]
    assert read(robin, old["fact_id"])["valid_to"] == young["valid_from"]


def test_supersession_without_a_note_is_recorded_too(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin, cardinality="single")["name"]
    old = fact(robin, subject, name, "Bern")
    young = write(robin, subject, name, "Basel")
    assert young["superseded"] == [old["fact_id"]]
    assert [link["note_id"] for link in history(robin, old["fact_id"])["supersessions"]] == [None]


def test_a_supersession_is_unique_for_both_facts_and_its_note(robin: httpx.Client, superuser: Superuser) -> None:
    subject, name = new(), predicate(robin, cardinality="single")["name"]
    old = fact(robin, subject, name, "Bern")
    fact(robin, subject, name, "Basel")
    row = superuser.execute(
        "SELECT supersession_id::text AS id FROM graph_fact_supersessions WHERE from_fact_id = %s", (old["fact_id"],)
    ).fetchone()
    assert row is not None
    with refused(superuser, psycopg.errors.UniqueViolation, "graph_fact_supersessions_link_key"):
        copy(superuser, "graph_fact_supersessions", "supersession_id", row["id"])


@pytest.mark.parametrize(
    "decided", [{"status": "pending", "cardinality": "single"}, {"status": "active", "cardinality": "multi"}], ids=str
)
def test_only_active_and_single_supersedes(robin: httpx.Client, decided: dict[str, str]) -> None:
    subject, name = new(), predicate(robin, **decided)["name"]
    first = fact(robin, subject, name, "Bern")
    assert write(robin, subject, name, "Basel")["superseded"] == []
    assert read(robin, first["fact_id"])["valid_to"] is None


def test_an_equal_start_does_not_break_the_check_on_its_own_end(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin, cardinality="single")["name"]
    old = fact(robin, subject, name, "Bern", valid_from=year(2020))
    young = fact(robin, subject, name, "Basel", valid_from=year(2020))
    assert read(robin, old["fact_id"])["retracted_at"] is not None
    assert ids(listed(robin, entity=subject)) == [young["fact_id"]]


def test_a_back_dated_fact_does_not_leave_two_open(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin, cardinality="single")["name"]
    young = fact(robin, subject, name, "Basel", valid_from=year(2021))
    old = fact(robin, subject, name, "Bern", valid_from=year(2020))
    assert old["valid_to"] == year(2021)
    assert ids(listed(robin, entity=subject)) == [young["fact_id"]]


def test_a_deprecated_predicate_takes_no_facts(robin: httpx.Client) -> None:
    made = predicate(robin)
    robin.patch(f"/v1/predicates/{made['predicate_id']}", json={"status": "deprecated"})
    assert error(robin.post("/v1/facts", json=body(new(), made["name"], "x"))) == (409, "predicate_deprecated")
