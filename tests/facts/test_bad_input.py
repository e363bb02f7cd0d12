"""Invalid facts, entities and predicates: a 4xx that names the field, and nothing is written."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.facts.shared import body, entity, error, fact, new, note, predicate, year

Superuser = psycopg.Connection[dict[str, Any]]
TABLES = (
    "graph_entities", "graph_entity_aliases", "graph_predicates", "graph_predicate_aliases", "graph_facts",
    "graph_fact_evidence", "graph_fact_supersessions", "fact_closings", "fact_conflicts", "fact_retractions",
    "fact_derivations", "entity_edges", "note_entity_mentions", "audit_log",
)  # fmt: skip
Refuse = Callable[..., dict[str, Any]]
# The same in every process: parallel workers have to collect the same tests.
UNKNOWN = "018f0000-0000-7000-8000-000000000fff"


@pytest.fixture
def refuse(robin: httpx.Client, superuser: Superuser) -> Refuse:
    """Sends what has to be refused and answers the error with its status."""
    counts = " UNION ALL ".join(
        f"SELECT '{table}' AS name, count(*) AS rows, md5(coalesce(string_agg(t::text, ',' ORDER BY t::text), '')) "
        f"AS content FROM {table} t"
        for table in TABLES
    )

    def send(method: str, path: str, sent: Any, *, client: httpx.Client = robin, field: str = "") -> dict[str, Any]:
        before = superuser.execute(counts.encode()).fetchall()
        content = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        answer = client.request(method, path, content=content, headers={"Content-Type": "application/json"})
        assert 400 <= answer.status_code < 500, answer.text
        error(answer)
        assert field in answer.json()["error"]["message"]
        assert superuser.execute(counts.encode()).fetchall() == before
        return {"status": answer.status_code, **answer.json()["error"]}

    return send


def good(**changes: Any) -> dict[str, Any]:
    return {**body(new(), new("likes"), "tea"), **changes}


BROKEN: list[tuple[str, dict[str, Any], int]] = [
    ("object", {"object": {"entity": "Acme", "value": "Acme"}}, 400),
    ("object", {"object": {"entity": "Acme", "type": "string"}}, 400),
    ("object", {"object": {"entity": "Acme", "value": None}}, 400),
    ("object", {"object": {}}, 400),
    ("object", {"object": {"type": "string"}}, 400),
    ("object", {"object": None}, 400),
    ("object", {"object": "tea"}, 400),
    ("object", {"object": ["tea"]}, 400),
    ("object", {"object": {"value": ["tea"]}}, 400),
    ("object", {"object": {"value": {"a": 1}}}, 400),
    ("object", {"object": {"value": "tea", "type": "drink"}}, 400),
    ("object", {"object": {"value": "tea", "type": "entity"}}, 400),
    ("object", {"object": {"value": "1", "type": "number"}}, 400),
    ("object", {"object": {"value": True, "type": "number"}}, 400),
    ("object", {"object": {"value": 1, "type": "boolean"}}, 400),
    ("object", {"object": {"value": 1, "type": "string"}}, 400),
    ("object", {"object": {"value": None, "type": "string"}}, 400),
    ("object", {"object": {"value": "", "type": "null"}}, 400),
    ("object", {"object": {"value": ""}}, 400),
    ("object", {"object": {"value": " \t\n"}}, 400),
    ("object", {"object": {"value": "2026-01-31T12:00:00", "type": "datetime"}}, 400),
    ("object", {"object": {"value": "2026-01-31", "type": "datetime"}}, 400),
    ("object", {"object": {"value": "yesterday", "type": "datetime"}}, 400),
    ("object", {"object": {"value": "0001-01-01T00:00:00+05:00", "type": "datetime"}}, 400),
    ("object", {"object": {"value": "x" * (64 * 1024 + 1)}}, 413),
    ("object", {"object": {"value": "é" * (32 * 1024 + 1), "type": "text"}}, 413),
    ("object", {"object": {"value": 10**400}}, 400),
    ("object", {"object": {"value": "a\0b"}}, 400),
    ("object", {"object": {"entity": ""}}, 400),
    ("object", {"object": {"entity": "a\0b"}}, 400),
    ("object", {"object": {"entity": {}}}, 400),
    ("object", {"object": {"entity": {"canonical": "Acme", "entity_id": UNKNOWN}}}, 400),
    ("object", {"object": {"entity": {"canonical": "Acme", "kind": ""}}}, 400),
    ("object", {"object": {"entity": {"canonical": "Acme", "surprise": 1}}}, 400),
    ("object", {"object": {"entity": UNKNOWN}}, 404),
    ("object", {"object": {"value": "tea", "surprise": 1}}, 400),
    ("subject", {"subject": ""}, 400),
    ("subject", {"subject": " \t\n\u00a0\u2003"}, 400),
    ("subject", {"subject": "\u200b\u200b\ufeff\u2060"}, 400),
    ("subject", {"subject": {"canonical": " \u200d "}}, 400),
    ("subject", {"subject": "user:"}, 400),
    ("subject", {"subject": "user: "}, 400),
    ("subject", {"subject": "a\0b"}, 400),
    ("subject", {"subject": "x" * 513}, 400),
    ("subject", {"subject": None}, 400),
    ("subject", {"subject": 5}, 400),
    ("subject", {"subject": ["Alice"]}, 400),
    ("subject", {"subject": {"canonical": None}}, 400),
    ("subject", {"subject": {"canonical": "Alice", "kind": "k" * 65}}, 400),
    ("subject", {"subject": {"entity_id": "not an id"}}, 400),
    ("subject", {"subject": {"entity_id": UNKNOWN}}, 404),
    ("subject", {"subject": UNKNOWN}, 404),
    ("subject", {"entity": "Alice"}, 400),
    ("subject", {"entity_uri": "user:alice"}, 400),
    ("predicate", {"predicate": ""}, 400),
    ("predicate", {"predicate": "\u200b"}, 400),
    ("predicate", {"predicate": "x" * 201}, 400),
    ("predicate", {"predicate": "a\0b"}, 400),
    ("predicate", {"predicate": None}, 400),
    ("predicate", {"predicate": 5}, 400),
    ("predicate", {"predicate": UNKNOWN}, 404),
    ("predicate", {"relation": "likes"}, 400),
    ("scope", {"scope": "everybody"}, 400),
    ("scope", {"scope": None}, 400),
    ("garden_id", {"garden_id": "not an id"}, 400),
    ("garden", {"garden_id": UNKNOWN}, 404),
    ("source", {"source": ""}, 400),
    ("source", {"source": "x" * 501}, 400),
    ("source", {"source": "a\0b"}, 400),
    ("source", {"source": 5}, 400),
    ("confidence", {"confidence": -0.01}, 400),
    ("confidence", {"confidence": 1.01}, 400),
    ("confidence", {"confidence": "1"}, 400),
    ("confidence", {"confidence": None}, 400),
    ("confidence", {"confidence": True}, 400),
    ("confidence", {"confidence": 10**400}, 400),
    ("valid_from", {"valid_from": "2026-01-31T12:00:00"}, 400),
    ("valid_from", {"valid_from": "2026-01-31"}, 400),
    ("valid_from", {"valid_from": "soon"}, 400),
    ("valid_from", {"valid_from": "infinity"}, 400),
    ("valid_from", {"valid_from": True}, 400),
    ("valid_from", {"valid_from": "0001-01-01T00:00:00+05:00"}, 400),
    ("valid_to", {"valid_to": "2026-01-31T12:00:00"}, 400),
    ("valid_to", {"valid_to": "9999-12-31T23:59:59-05:00"}, 400),
    ("valid_to", {"valid_from": year(2021), "valid_to": year(2021)}, 400),
    ("valid_to", {"valid_from": year(2021), "valid_to": year(2020)}, 400),
    ("valid_to", {"valid_from": "2021-01-01T00:00:00+00:00", "valid_to": "2021-01-01T01:00:00+01:00"}, 400),
    ("valid_to", {"valid_to": year(2020)}, 400),
    ("valid_to", {"valid_until": year(2020)}, 400),
    ("valid_to", {"valid_to": year(2998), "valid_until": year(2999)}, 400),
    ("evidence", {"evidence": [UNKNOWN]}, 404),
    ("evidence", {"evidence": ["not an id"]}, 400),
    ("evidence", {"evidence": "not a list"}, 400),
    ("evidence", {"evidence": None}, 400),
    ("evidence", {"evidence": [None]}, 400),
    ("evidence", {"evidence": [f"{UNKNOWN[:-3]}{number:03}" for number in range(101)]}, 400),
    ("derived_from", {"derived_from": ["abc"]}, 400),
    ("derived_from", {"derived_from": ["AB" * 32]}, 400),
    ("derived_from", {"derived_from": ["ab" * 32 + "\n"]}, 400),
    ("derived_from", {"derived_from": ["ab" * 33]}, 400),
    ("derived_from", {"derived_from": [5]}, 400),
    ("derived_from", {"derived_from": ["ab" * 32] * 101}, 400),
    ("surprise", {"surprise": 1}, 400),
    ("fact_id", {"fact_id": UNKNOWN}, 400),
    ("tenant_id", {"tenant_id": "rival"}, 400),
]
each_broken = pytest.mark.parametrize(
    ("field", "changes", "status"), BROKEN, ids=lambda item: json.dumps(item)[:50] if isinstance(item, dict) else ""
)


@each_broken
def test_a_broken_fact_is_refused_by_the_name_of_its_field(
    refuse: Refuse, field: str, changes: dict[str, Any], status: int
) -> None:
    assert refuse("POST", "/v1/facts", good(**changes), field=field)["status"] == status


@each_broken
def test_a_broken_fact_in_a_batch_is_refused_by_its_index(
    refuse: Refuse, field: str, changes: dict[str, Any], status: int
) -> None:
    sent = {"facts": [good(), good(**changes), good()]}
    refused = refuse("POST", "/v1/facts/batch", sent, field=field)
    assert refused["status"] == status
    # A NUL is refused before anybody looks at the items.
    assert refused["details"].get("index") == (None if "\\u0000" in json.dumps(changes) else 1)


@pytest.mark.parametrize("missing", ["subject", "predicate", "object"])
def test_a_fact_without_a_part_is_refused_by_its_name(refuse: Refuse, missing: str) -> None:
    sent = {name: value for name, value in good().items() if name != missing}
    assert refuse("POST", "/v1/facts", sent, field=missing)["status"] == 400
    assert refuse("PUT", "/v1/facts", sent, field=missing)["status"] == 400


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("place", ["confidence", "object"])
def test_numbers_that_are_none_are_refused(refuse: Refuse, literal: str, place: str) -> None:
    sent = json.dumps(good(**({"confidence": "@"} if place == "confidence" else {"object": {"value": "@"}})))
    assert refuse("POST", "/v1/facts", sent.replace('"@"', literal).encode())["status"] == 400


def test_an_end_before_the_present_does_not_confirm_what_is_believed(robin: httpx.Client, refuse: Refuse) -> None:
    for name in (new("likes"), predicate(robin, cardinality="single")["name"]):
        held = fact(robin, new(), name, "tea", valid_from=year(2010))
        sent = body(held["subject"]["entity_id"], name, "tea", valid_to=year(2020))
        assert refuse("POST", "/v1/facts", sent, field="valid_to")["status"] == 400


def test_an_end_before_the_present_is_an_error_of_its_own_in_a_loose_batch(robin: httpx.Client) -> None:
    sent = {"facts": [good(), good(valid_to=year(2020)), good()], "atomic": False}
    answer = robin.post("/v1/facts/batch", json=sent)
    assert answer.status_code == 200, answer.text
    assert ["error" in item for item in answer.json()["results"]] == [False, True, False]


def test_notes_that_cannot_be_read_are_no_evidence(
    robin: httpx.Client, wren: httpx.Client, rival: httpx.Client, elsewhere: httpx.Client, refuse: Refuse
) -> None:
    deleted = note(robin)
    assert robin.delete(f"/v1/notes/{deleted}", params={"reason": "r"}).status_code in (200, 204)
    garden = wren.post("/v1/gardens", json={"slug": f"g{uuid4().hex[:8]}"}).json()["garden"]["garden_id"]
    hidden = [
        deleted,
        note(rival),
        note(elsewhere),
        note(elsewhere, scope="public"),
        note(wren, scope="agent_private"),
        note(wren, garden_id=garden),
    ]
    readable = note(robin)
    for note_id in hidden:
        refused = refuse("POST", "/v1/facts", good(evidence=[readable, note_id]), field="evidence[1]")
        assert (refused["status"], refused["code"]) == (404, "note_not_found")


def test_a_thousand_and_one_facts_are_refused(refuse: Refuse) -> None:
    refused = refuse("POST", "/v1/facts/batch", {"facts": [good()] * 1001}, field="facts")
    assert (refused["status"], refused["code"]) == (400, "batch_too_large")


NO_BATCH: list[dict[str, Any]] = [
    {}, {"facts": []}, {"facts": None}, {"facts": {}}, {"facts": ["tea"]}, {"facts": [None]}, {"facts": [[]]},
    {"facts": [body("a", "b", "c")], "atomic": "yes"}, {"facts": [body("a", "b", "c")], "atomic": None},
    {"facts": [body("a", "b", "c")], "surprise": 1},
]  # fmt: skip


@pytest.mark.parametrize("sent", NO_BATCH, ids=str)
def test_a_batch_that_is_none_is_refused(refuse: Refuse, sent: dict[str, Any]) -> None:
    assert refuse("POST", "/v1/facts/batch", sent)["status"] == 400


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("valid_to", {}),
        ("valid_to", {"valid_to": "2026-01-31T12:00:00"}),
        ("valid_to", {"valid_to": year(2020)}),
        ("valid_to", {"valid_to": year(2019)}),
        ("valid_to", {"valid_to": 5.5e300}),
        ("valid_to", {"valid_to": "soon"}),
        ("confidence", {"valid_to": None, "confidence": 0.5}),
        ("object", {"valid_to": None, "object": {"value": "milk"}}),
        ("valid_from", {"valid_to": None, "valid_from": year(2010)}),
    ],
    ids=str,
)
def test_a_broken_end_is_refused(robin: httpx.Client, refuse: Refuse, field: str, sent: dict[str, Any]) -> None:
    made = fact(robin, new(), new("likes"), "tea", valid_from=year(2020))
    assert refuse("PATCH", f"/v1/facts/{made['fact_id']}", sent, field=field)["status"] == 400


def test_unknown_ids_are_not_found(refuse: Refuse, robin: httpx.Client) -> None:
    unknown = uuid4()
    assert refuse("PATCH", f"/v1/facts/{unknown}", {"valid_to": None})["code"] == "fact_not_found"
    assert refuse("POST", f"/v1/facts/{unknown}/retract", {})["code"] == "fact_not_found"
    assert refuse("POST", f"/v1/entities/{unknown}/aliases", {"alias": "x"})["code"] == "entity_not_found"
    assert refuse("POST", f"/v1/entities/{unknown}/merge", {"into": str(uuid4())})["code"] == "entity_not_found"
    assert refuse("PATCH", f"/v1/predicates/{unknown}", {"status": "active"})["code"] == "predicate_not_found"
    assert refuse("POST", f"/v1/predicates/{unknown}/aliases", {"alias": "x"})["code"] == "predicate_not_found"
    for path in (f"facts/{unknown}", f"facts/{unknown}/history", f"entities/{unknown}", f"predicates/{unknown}"):
        assert robin.get(f"/v1/{path}").status_code == 404
    assert error(robin.get("/v1/facts/not-an-id"))[0] in (400, 404)


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("reason", {"reason": ""}),
        ("reason", {"reason": "x" * 501}),
        ("reason", {"reason": "a\0b"}),
        ("reason", {"reason": 5}),
        ("surprise", {"surprise": 1}),
    ],
    ids=str,
)
def test_a_broken_retraction_is_refused(robin: httpx.Client, refuse: Refuse, field: str, sent: dict[str, Any]) -> None:
    made = fact(robin, new(), new("likes"), "tea")
    assert refuse("POST", f"/v1/facts/{made['fact_id']}/retract", sent, field=field)["status"] == 400
    place = {"subject": made["subject"]["canonical"], "predicate": made["predicate"]["name"]}
    assert refuse("POST", "/v1/facts/retract", {**place, **sent}, field=field)["status"] == 400


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("subject", {"predicate": "likes"}),
        ("predicate", {"subject": "Alice"}),
        ("subject", {"subject": "", "predicate": "likes"}),
        ("predicate", {"subject": "Alice", "predicate": " "}),
        ("scope", {"subject": "Alice", "predicate": "likes", "scope": "everybody"}),
        ("subject", {"subject": {}, "predicate": "likes"}),
    ],
    ids=str,
)
def test_a_broken_retraction_of_many_is_refused(refuse: Refuse, field: str, sent: dict[str, Any]) -> None:
    assert refuse("POST", "/v1/facts/retract", sent, field=field)["status"] == 400


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("canonical", {}),
        ("canonical", {"canonical": ""}),
        ("canonical", {"canonical": "\u200b \u200d"}),
        ("canonical", {"canonical": "x" * 513}),
        ("canonical", {"canonical": "İ" * 400}),
        ("canonical", {"canonical": "a\0b"}),
        ("canonical", {"canonical": 5}),
        ("canonical", {"canonical": "user:"}),
        ("kind", {"canonical": "Alice", "kind": ""}),
        ("kind", {"canonical": "Alice", "kind": "x" * 65}),
        ("kind", {"canonical": "Alice", "kind": "a\0b"}),
        ("aliases[1]", {"canonical": "Alice", "aliases": ["Al", " "]}),
        ("aliases", {"canonical": "Alice", "aliases": ["Al"] * 101}),
        ("aliases", {"canonical": "Alice", "aliases": "Al"}),
        ("surprise", {"canonical": "Alice", "surprise": 1}),
    ],
    ids=lambda item: str(item)[:50],
)
def test_a_broken_entity_is_refused(refuse: Refuse, field: str, sent: dict[str, Any]) -> None:
    assert refuse("POST", "/v1/entities", sent, field=field)["status"] == 400


@pytest.mark.parametrize("alias", ["", "\u200b", "x" * 513, "a\0b", 5, None, ["a"]], ids=lambda item: str(item)[:20])
def test_a_broken_alias_is_refused(robin: httpx.Client, refuse: Refuse, alias: Any) -> None:
    for path in (
        f"/v1/entities/{entity(robin)['entity_id']}/aliases",
        f"/v1/predicates/{predicate(robin)['predicate_id']}/aliases",
    ):
        assert refuse("POST", path, {"alias": alias}, field="alias")["status"] == 400
        assert refuse("POST", path, {}, field="alias")["status"] == 400


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("name", {}),
        ("name", {"name": ""}),
        ("name", {"name": "\u200b"}),
        ("name", {"name": "x" * 201}),
        ("name", {"name": "a\0b"}),
        ("cardinality", {"name": "n", "cardinality": "many"}),
        ("status", {"name": "n", "status": "deprecated"}),
        ("status", {"name": "n", "status": "open"}),
        ("scope", {"name": "n", "scope": "global"}),
        ("surprise", {"name": "n", "surprise": 1}),
    ],
    ids=str,
)
def test_a_broken_predicate_is_refused(refuse: Refuse, field: str, sent: dict[str, Any]) -> None:
    assert refuse("POST", "/v1/predicates", sent, field=field)["status"] == 400


@pytest.mark.parametrize(
    "sent",
    [{}, {"resolve": "latest"}, {"status": None}, {"status": "open"}, {"cardinality": None}, {"cardinality": "many"},
     {"status": "active", "resolve": "first"}, {"name": "another"}],
    ids=str,
)  # fmt: skip
def test_a_broken_decision_is_refused(robin: httpx.Client, refuse: Refuse, sent: dict[str, Any]) -> None:
    made = predicate(robin)
    assert refuse("PATCH", f"/v1/predicates/{made['predicate_id']}", sent)["status"] == 400


@pytest.mark.parametrize(
    ("field", "params"),
    [
        ("limit", {"limit": 0}),
        ("limit", {"limit": 201}),
        ("cursor", {"cursor": "nonsense"}),
        ("entity", {"entity": ""}),
        ("entity", {"entity": "x" * 600}),
        ("entity", {"entity": "a", "entity_uri": "b"}),
        ("object", {"object": " "}),
        ("predicate", {"predicate": ""}),
        ("predicate", {"predicate": "a", "relation": "b"}),
        ("predicate", {"predicate": "x" * 300}),
        ("scope", {"scope": "everybody"}),
        ("garden", {"garden": "not an id"}),
        ("min_confidence", {"min_confidence": 2}),
        ("min_confidence", {"min_confidence": "nan"}),
        ("valid_at", {"valid_at": "2026-01-31T12:00:00"}),
        ("valid_at", {"valid_at": "yesterday"}),
        ("as_of", {"as_of": "2026-01-31"}),
        ("as_of", {"as_of": year(2999)}),
        ("include_inactive", {"include_inactive": "perhaps"}),
        ("query", {"entity": "a\0b"}),
        ("query", {"source": "a\0b"}),
    ],
    ids=str,
)
def test_a_broken_filter_is_refused_by_its_name(robin: httpx.Client, field: str, params: dict[str, Any]) -> None:
    answer = robin.get("/v1/facts", params=params)
    assert error(answer)[0] == 400
    assert field in answer.json()["error"]["message"]
