"""TIME, sentence by sentence: each MUST and MUST NOT of sections 24.2 to 24.6 under its number.

Where a sentence speaks of recall, what is tested is the reading of facts; recall reads by the same rules.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg import sql

from app.access import Principal
from app.facts import queries
from app.read_context import ReadContext
from tests.conftest import Tenancy, TestDatabase
from tests.erasure.shared import events, revoke, tombstone
from tests.facts.conftest import UNLIMITED
from tests.facts.shared import error, fact, ids, listed, new, note, predicate, read, write, year
from tests.service import RunningService, start_service

Superuser = psycopg.Connection[dict[str, Any]]
AsKey = Callable[..., httpx.Client]
# Every endpoint that looks back; {fact} and {entity} are ids.
ENDPOINTS = ["/v1/facts", "/v1/facts/{fact}", "/v1/facts/{fact}/provenance", "/v1/entities", "/v1/entities/{entity}"]


def moment(superuser: Superuser) -> str:
    """Now, by the clock that dates the writes."""
    row = superuser.execute("SELECT clock_timestamp() AS now").fetchone()
    assert row is not None
    return row["now"].isoformat()


def just_before(text: str) -> str:
    return (datetime.fromisoformat(text) - timedelta(microseconds=1)).isoformat()


def from_now(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def retract(client: httpx.Client, made: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(f"/v1/facts/{made['fact_id']}/retract", json={})
    assert answer.status_code == 200, answer.text
    return answer.json()["fact"]


def end(client: httpx.Client, made: dict[str, Any], valid_to: str | None) -> dict[str, Any]:
    answer = client.patch(f"/v1/facts/{made['fact_id']}", json={"valid_to": valid_to})
    assert answer.status_code == 200, answer.text
    return answer.json()["fact"]


def sweep(admin: httpx.Client, **policy: Any) -> None:
    """Run a sweep with a policy that exists only for it."""
    made = admin.post("/v1/decay/policies", json=policy)
    assert made.status_code == 201, made.text
    swept = admin.post("/v1/decay/sweep", json={})
    admin.delete(f"/v1/decay/policies/{made.json()['policy']['policy_id']}").raise_for_status()
    assert swept.status_code == 200, swept.text


def answered(client: httpx.Client, path: str = "/v1/facts", **params: Any) -> dict[str, Any]:
    """The whole of an answer that is given."""
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def notice(made: dict[str, Any]) -> dict[str, Any]:
    """Return the notice of a tombstone that 24.3.3 demands."""
    return {
        "entity_uri": made["entity"],
        "tombstone_id": made["tombstone_id"],
        "legal_hold": True,
        "tombstone_created_at": made["created_at"],
    }


@dataclass(frozen=True)
class Case:
    """An entity of which something is known, and a moment when it was."""

    name: str
    facts: list[dict[str, Any]]
    then: str

    @property
    def entity_id(self) -> str:
        return self.facts[0]["subject"]["entity_id"]


@pytest.fixture
def known(robin: httpx.Client, superuser: Superuser) -> Callable[..., Case]:
    def make(name: str | None = None, likes: str | None = None) -> Case:
        name, likes = name or new("user:alice"), likes or new("likes")
        made = [fact(robin, name, likes, {"entity": new()}, valid_from=year(number)) for number in (2015, 2018)]
        return Case(made[0]["subject"]["canonical"], made, moment(superuser))

    return make


# 24.1


def say_again(robin: httpx.Client, admin: httpx.Client, made: dict[str, Any]) -> None:
    cited = note(robin)
    target = {"value": made["object"]["value"]}
    again = write(
        robin, made["subject"]["canonical"], made["predicate"]["name"], target, confidence=0.1, evidence=[cited]
    )
    assert again["outcome"] == "reused"


def contradict(robin: httpx.Client, admin: httpx.Client, made: dict[str, Any]) -> None:
    assert write(robin, made["subject"]["canonical"], made["predicate"]["name"], "coffee")["conflicts"]


def settle(robin: httpx.Client, admin: httpx.Client, made: dict[str, Any]) -> None:
    conflict = write(robin, made["subject"]["canonical"], made["predicate"]["name"], "coffee")["conflicts"][0]
    answer = robin.post(f"/v1/conflicts/{conflict}/resolve", json={"value": "water"})
    assert answer.status_code == 200, answer.text


def win(robin: httpx.Client, admin: httpx.Client, made: dict[str, Any]) -> None:
    conflict = write(robin, made["subject"]["canonical"], made["predicate"]["name"], "coffee")["conflicts"][0]
    answer = robin.post(f"/v1/conflicts/{conflict}/resolve", json={"winner": made["fact_id"]})
    assert (answer.status_code, read(robin, made["fact_id"])["confidence"]) == (200, 1), answer.text


def decay(robin: httpx.Client, admin: httpx.Client, made: dict[str, Any]) -> None:
    time.sleep(0.1)
    sweep(admin, relation=made["predicate"]["name"], mode="confidence", half_life_s=0.02, min_confidence=0.1)


def let_lapse(robin: httpx.Client, admin: httpx.Client, made: dict[str, Any]) -> None:
    sweep(admin, relation=made["predicate"]["name"], mode="retract", ttl_s=0.001)


CHANGES: dict[str, Callable[[httpx.Client, httpx.Client, dict[str, Any]], Any]] = {
    "ended": lambda robin, admin, made: end(robin, made, year(2020)) and None,
    "retracted": lambda robin, admin, made: retract(robin, made) and None,
    "said again": say_again,
    "contradicted": contradict,
    "conflict settled": settle,
    "conflict won": win,
    "decayed": decay,
    "decayed away": let_lapse,
}


def without_count(facts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**item, "mentions": None} for item in facts]


@pytest.mark.parametrize("change", CHANGES)
def test_24_1_facts_are_as_they_were_visible_to_an_ordinary_query(
    change: str, robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    subject = new()
    made = fact(robin, subject, new("drinks"), "tea", valid_from=year(2015), confidence=0.9, evidence=[note(robin)])
    before, then = listed(robin, entity=subject), moment(superuser)
    CHANGES[change](robin, admin, made)
    assert without_count(listed(robin, entity=subject)) != without_count(before)
    assert without_count(listed(robin, entity=subject, as_of=then)) == without_count(before)
    assert without_count([read(robin, made["fact_id"], as_of=then)]) == without_count(before)


def test_24_1_a_fact_was_said_as_often_as_it_had_been_by_then(robin: httpx.Client, superuser: Superuser) -> None:
    subject, name = new(), new("drinks")
    made = fact(robin, subject, name, "tea")
    then = moment(superuser)
    assert write(robin, subject, name, "tea")["fact"]["mentions"] == 2
    assert read(robin, made["fact_id"], as_of=then)["mentions"] == 1


# 24.2.1


def test_24_2_1_1_a_fact_is_visible_from_the_moment_it_was_written(robin: httpx.Client) -> None:
    subject = new()
    made = fact(robin, subject, new("likes"), "tea", valid_from=year(2015))
    written = made["created_at"]
    assert ids(listed(robin, entity=subject, as_of=written)) == [made["fact_id"]]
    assert listed(robin, entity=subject, as_of=just_before(written)) == []
    assert read(robin, made["fact_id"], as_of=written)["fact_id"] == made["fact_id"]
    early = robin.get(f"/v1/facts/{made['fact_id']}", params={"as_of": just_before(written)})
    assert error(early) == (404, "fact_not_found")


def test_24_2_1_1_the_start_of_validity_does_not_make_a_fact_older(robin: httpx.Client) -> None:
    """Written today about 2015, it was not known yesterday, whatever it says about 2015."""
    subject = new()
    made = fact(robin, subject, new("likes"), "tea", valid_from=year(2015))
    times = {"as_of": just_before(made["created_at"]), "valid_at": year(2016)}
    assert listed(robin, entity=subject, **times) == []
    assert listed(robin, entity=subject, as_of=year(2016)) == []


def test_24_2_1_2_a_fact_is_visible_until_the_moment_it_expires(robin: httpx.Client) -> None:
    subject, expiry = new(), from_now(1.5)
    made = fact(robin, subject, new("likes"), "tea", valid_from=year(2015), valid_to=expiry)
    deadline = datetime.fromisoformat(expiry)
    while datetime.now(UTC) <= deadline:
        time.sleep(0.05)
    assert ids(listed(robin, entity=subject, as_of=just_before(expiry))) == [made["fact_id"]]
    assert listed(robin, entity=subject, as_of=expiry) == []
    assert listed(robin, entity=subject) == []


def test_24_2_1_2_an_end_that_was_recorded_later_was_not_known_before(robin: httpx.Client) -> None:
    subject = new()
    made = fact(robin, subject, new("likes"), "tea", valid_from=year(2015))
    recorded = end(robin, made, year(2020))["closed_at"]
    (before,) = listed(robin, entity=subject, as_of=just_before(recorded))
    assert (before["valid_to"], before["closed_at"]) == (None, None)
    assert listed(robin, entity=subject, as_of=recorded) == []


def retract_by_id(robin: httpx.Client, admin: httpx.Client, made: dict[str, Any]) -> None:
    retract(robin, made)


def take_back_all(robin: httpx.Client, admin: httpx.Client, made: dict[str, Any]) -> None:
    place = {"subject": made["subject"]["canonical"], "predicate": made["predicate"]["name"]}
    assert robin.post("/v1/facts/retract", json=place).json()["retracted"] == [made["fact_id"]]


def correct(robin: httpx.Client, admin: httpx.Client, made: dict[str, Any]) -> None:
    path = f"/v1/predicates/{made['predicate']['predicate_id']}"
    assert robin.patch(path, json={"status": "active", "cardinality": "single"}).status_code == 200
    right = write(robin, made["subject"]["canonical"], made["predicate"]["name"], "coffee", valid_from=year(2015))
    assert right["superseded"] == [made["fact_id"]]


def merge(robin: httpx.Client, admin: httpx.Client, made: dict[str, Any]) -> None:
    other = fact(robin, new(), made["predicate"]["name"], "tea", valid_from=year(2010))
    path = f"/v1/entities/{made['subject']['entity_id']}/merge"
    answer = robin.post(path, json={"into": other["subject"]["entity_id"]})
    assert answer.status_code == 200, answer.text
    assert answer.json()["facts_folded"] == 1


RETRACTIONS: dict[str, tuple[str, Callable[[httpx.Client, httpx.Client, dict[str, Any]], None]]] = {
    "by id": ("retracted", retract_by_id),
    "by place": ("retracted", take_back_all),
    "corrected": ("corrected", correct),
    "merged": ("merged", merge),
    "decayed": ("decayed", let_lapse),
    "resolved": ("resolved", settle),
}


@pytest.mark.parametrize("way", RETRACTIONS)
def test_24_2_1_3_a_fact_is_visible_until_the_log_says_it_was_retracted(
    way: str, robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    """The log says when and how sure one had been; the fact's own confidence, now 0, plays no part."""
    kind, act = RETRACTIONS[way]
    made = fact(robin, new(), new("drinks"), "tea", valid_from=year(2015), confidence=0.7)
    act(robin, admin, made)
    log = superuser.execute("SELECT * FROM fact_retractions WHERE fact_id = %s", (made["fact_id"],)).fetchall()
    assert [(row["kind"], row["confidence_before"]) for row in log] == [(kind, 0.7)]
    gone = log[0]["retracted_at"].isoformat()
    assert read(robin, made["fact_id"])["confidence"] == 0
    # By predicate: a merge leaves no name by which the subject of then could be asked for.
    place = {"predicate": made["predicate"]["name"], "valid_at": year(2016)}
    found = [item for item in listed(robin, as_of=just_before(gone), **place) if item["fact_id"] == made["fact_id"]]
    assert [(item["confidence"], item["retracted_at"]) for item in found] == [(0.7, None)]
    assert made["fact_id"] not in ids(listed(robin, as_of=gone, **place))
    assert made["fact_id"] not in ids(listed(robin, **place))


def test_24_2_1_3_a_confidence_of_zero_is_no_retraction(robin: httpx.Client, superuser: Superuser) -> None:
    """Without a line in the log nothing was retracted, whatever stands in the row."""
    subject, name = new(), predicate(robin)["name"]
    doubted = fact(robin, subject, name, "tea", confidence=0.1)
    superuser.execute("UPDATE graph_facts SET confidence = 0 WHERE fact_id = %s", (doubted["fact_id"],))
    altered = fact(robin, subject, name, "milk")
    then = moment(superuser)
    superuser.execute("UPDATE graph_facts SET confidence = 0 WHERE fact_id = %s", (altered["fact_id"],))
    assert set(ids(listed(robin, entity=subject, as_of=then))) == {doubted["fact_id"], altered["fact_id"]}


def test_24_2_1_3_a_confidence_above_zero_is_no_proof_of_being_believed(
    robin: httpx.Client, superuser: Superuser
) -> None:
    subject = new()
    made = fact(robin, subject, new("likes"), "tea")
    gone = retract(robin, made)["retracted_at"]
    superuser.execute("UPDATE graph_facts SET confidence = 1 WHERE fact_id = %s", (made["fact_id"],))
    assert listed(robin, entity=subject, as_of=gone) == []
    assert ids(listed(robin, entity=subject, as_of=just_before(gone))) == [made["fact_id"]]


@pytest.mark.parametrize("scope", ["company", ["org_shared", "public"], "*"], ids=str)
def test_24_2_1_4_a_tombstone_hides_what_is_in_its_scope(
    scope: str | list[str], robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    subject, name = new(), predicate(robin)["name"]
    shared = fact(robin, subject, name, "tea", scope="org_shared")
    within = fact(robin, subject, name, "tea", scope="project_shared")
    then = moment(superuser)
    tombstone(admin, subject, scope=scope)
    left = [] if scope == "*" else [within["fact_id"]]
    for client in (robin, admin):
        assert ids(listed(client, entity=subject, as_of=then)) == left
        assert ids(listed(client, predicate=name, as_of=then)) == left
    assert robin.get(f"/v1/facts/{shared['fact_id']}", params={"as_of": then}).status_code == 404


def test_24_2_1_4_the_answer_for_a_past_time_follows_the_tombstones_of_the_present(
    known: Callable[..., Case], robin: httpx.Client, admin: httpx.Client
) -> None:
    """No snapshot: a tombstone of today changes the answer of then, its revocation changes it back."""
    case = known()
    before = listed(robin, entity=case.name, as_of=case.then)
    assert len(before) == 2
    made = tombstone(admin, case.name)
    assert listed(robin, entity=case.name, as_of=case.then) == []
    revoke(admin, made)
    assert listed(robin, entity=case.name, as_of=case.then) == before


# 24.2.2


def address(endpoint: str, case: Case) -> str:
    return endpoint.format(fact=case.facts[0]["fact_id"], entity=case.entity_id)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_24_2_2_as_of_is_accepted(endpoint: str, known: Callable[..., Case], robin: httpx.Client) -> None:
    """On recall too, once there is one."""
    case = known()
    assert robin.get(address(endpoint, case), params={"as_of": case.then}).status_code == 200


def test_24_2_2_as_of_is_accepted_with_entity_uri_and_scope(
    known: Callable[..., Case], robin: httpx.Client, superuser: Superuser
) -> None:
    case = known()
    elsewhere = fact(robin, case.name, new("likes"), "tea", scope="org_shared")
    asked = {"entity_uri": case.name, "as_of": moment(superuser)}
    assert len(listed(robin, **asked)) == 3
    assert ids(listed(robin, **asked, scope="company")) == [elsewhere["fact_id"]]


@pytest.mark.parametrize(
    "text",
    ["{at:%Y-%m-%dT%H:%M:%S.%f}Z", "{at:%Y-%m-%dT%H:%M:%S.%f}+00:00", "{at:%Y%m%dT%H%M%S,%f}Z", "{there}", "{blank}"],
)
def test_24_2_2_an_iso_8601_time_is_taken(text: str, known: Callable[..., Case], robin: httpx.Client) -> None:
    """Extended or basic form, in any zone; a plus that was not escaped arrives as a blank."""
    case = known()
    at = datetime.fromisoformat(case.then).astimezone(UTC)
    there = at.replace(tzinfo=None) + timedelta(hours=2)
    written = text.format(at=at, there=f"{there.isoformat()}+02:00", blank=f"{there.isoformat()} 02:00")
    assert len(listed(robin, entity=case.name, as_of=written)) == 2


WRONG = [
    "",
    "yesterday",
    "1735689600",
    "2025-13-01T00:00:00Z",
    "2025-02-30T00:00:00Z",
    "2025-01-01T25:00:00Z",
    "2025-01-01T00:00:00",
    "2025-01-01",
    "2025-01-01T00:00:00Z; DROP TABLE graph_facts",
    "null",
]


@pytest.mark.parametrize("text", WRONG)
def test_24_2_2_what_is_no_time_is_refused(text: str, robin: httpx.Client) -> None:
    """Among them a time without a zone, which is ambiguous."""
    assert error(robin.get("/v1/facts", params={"as_of": text})) == (400, "as_of_invalid_timestamp")


@pytest.mark.parametrize(
    ("text", "code"),
    [("0001-01-01T00:00:00+14:00", "as_of_invalid_timestamp"), ("9999-12-31T23:59:59-14:00", "as_of_future")],
)
def test_24_2_2_a_time_beyond_the_calendar_is_refused_as_such(text: str, code: str, robin: httpx.Client) -> None:
    """Well formed, but in UTC before the year 1 or after 9999: whatever it is taken for, the error is one of 24.6."""
    status, said = error(robin.get("/v1/facts", params={"as_of": text}))
    assert status == 400
    assert said in (code, "as_of_invalid_timestamp")


def test_24_2_2_the_earliest_time_there_is_is_answered_with_nothing(robin: httpx.Client) -> None:
    assert answered(robin, as_of="0001-01-01T00:00:00Z") == {"facts": [], "next_cursor": None}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_24_2_2_what_is_no_time_is_refused_everywhere(
    endpoint: str, known: Callable[..., Case], robin: httpx.Client
) -> None:
    answer = robin.get(address(endpoint, known()), params={"as_of": "2025-99-99T00:00:00Z"})
    assert error(answer) == (400, "as_of_invalid_timestamp")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_24_2_2_the_future_is_refused_beyond_five_seconds(
    endpoint: str, known: Callable[..., Case], robin: httpx.Client, admin: httpx.Client
) -> None:
    """For every caller and endpoint; a clock that is slightly ahead is tolerated."""
    path = address(endpoint, known())
    for client in (robin, admin):
        for seconds in (15, 3600, 3600 * 24 * 365):
            assert error(client.get(path, params={"as_of": from_now(seconds)})) == (400, "as_of_future")
        assert client.get(path, params={"as_of": from_now(4)}).status_code == 200


def test_24_2_2_the_tolerance_ends_after_five_seconds(robin: httpx.Client) -> None:
    refused = robin.get("/v1/facts", params={"as_of": from_now(10)})
    assert error(refused) == (400, "as_of_future")
    assert robin.get("/v1/facts", params={"as_of": from_now(4.9)}).status_code == 200


def test_24_2_2_within_the_tolerance_the_present_is_answered(known: Callable[..., Case], robin: httpx.Client) -> None:
    case = known()
    assert listed(robin, entity=case.name, as_of=from_now(4)) == listed(robin, entity=case.name)


@dataclass(frozen=True)
class Archive:
    """A project that decides how far one may look back."""

    agent: httpx.Client
    admin: httpx.Client
    case: Case
    floor: str
    below: str

    def set_floor(self, floor: str | None) -> None:
        answer = self.admin.patch("/v1/admin/projects/default", json={"as_of_floor": floor})
        assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def archive_keys(tenancy: Tenancy) -> dict[str, str]:
    tenancy.tenant("archive")
    return {
        "agent": tenancy.key("archive", rate_limits=UNLIMITED),
        "admin": tenancy.key("archive", kind="admin", rate_limits=UNLIMITED),
    }


@pytest.fixture
def archive(archive_keys: dict[str, str], as_key: AsKey) -> Iterator[Archive]:
    agent, admin = as_key(archive_keys["agent"]), as_key(archive_keys["admin"], "default")
    first = fact(agent, new("user:alice"), new("likes"), "tea", valid_from=year(2015))
    floor = first["created_at"]
    made = Archive(agent, admin, Case(first["subject"]["canonical"], [first], floor), floor, just_before(floor))
    made.set_floor(floor)
    yield made
    made.set_floor(None)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_24_2_2_below_the_floor_nothing_is_answered(endpoint: str, archive: Archive) -> None:
    path = address(endpoint, archive.case)
    for client in (archive.agent, archive.admin):
        for below in (archive.below, year(2016), "0001-01-01T00:00:00Z"):
            assert error(client.get(path, params={"as_of": below})) == (400, "as_of_before_retention_floor")
        assert client.get(path, params={"as_of": archive.floor}).status_code == 200
        assert client.get(path).status_code == 200


QUESTIONS: list[dict[str, Any]] = [
    {},
    {"entity": "nobody of that name"},
    {"entity": "018f0000-0000-7000-8000-0000000000ff"},
    {"object": "nothing of that name"},
    {"predicate": "no such predicate"},
    {"scope": "public"},
    {"source": "no such source"},
    {"min_confidence": 1},
    {"include_inactive": True},
    {"include_inactive": True, "entity": "nobody of that name"},
    {"include_contradicted": False},
    {"include_low_trust": False},
    {"valid_at": "1900-01-01T00:00:00Z"},
    {"limit": 1},
]


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_24_2_2_below_the_floor_no_question_is_answered_not_even_with_nothing(
    question: dict[str, Any], archive: Archive
) -> None:
    answer = archive.agent.get("/v1/facts", params={**question, "as_of": archive.below})
    assert error(answer) == (400, "as_of_before_retention_floor")
    assert archive.agent.get("/v1/facts", params={**question, "as_of": archive.floor}).status_code == 200


def test_24_2_2_the_floor_is_told_and_can_be_lifted(archive: Archive) -> None:
    refused = archive.agent.get("/v1/facts", params={"as_of": archive.below})
    told = refused.json()["error"]["details"]["floor"]
    assert datetime.fromisoformat(told) == datetime.fromisoformat(archive.floor)
    archive.set_floor(None)
    assert archive.agent.get("/v1/facts", params={"as_of": archive.below}).status_code == 200


def test_24_2_2_a_floor_holds_in_its_project_alone(archive: Archive, robin: httpx.Client) -> None:
    assert robin.get("/v1/facts", params={"as_of": archive.below}).status_code == 200


# 24.2.3


def test_24_2_3_what_was_visible_at_one_time_is_visible_at_every_later_one(robin: httpx.Client) -> None:
    """Before tombstones, retraction and expiry, which `include_inactive` leaves aside. See test_replay for chance."""
    subject, home = new(), predicate(robin, cardinality="single", status="active")["name"]
    moments = [just_before(fact(robin, subject, home, "Bern", valid_from=year(2015))["created_at"])]
    for place, start in (("Basel", 2020), ("Zug", 2018), ("Chur", 2020)):
        made = fact(robin, subject, home, place, valid_from=year(start))
        moments += [just_before(made["created_at"]), made["created_at"]]
    moments.append(retract(robin, made)["retracted_at"])
    seen = [ids(listed(robin, entity=subject, as_of=then, include_inactive=True)) for then in moments]
    assert [len(found) for found in seen] == [0, 1, 2, 2, 3, 3, 4, 4]
    for earlier, later in pairwise(seen):
        assert set(earlier) <= set(later)


# 24.3.1


FILTERS: dict[str, Callable[[Case], dict[str, Any]]] = {
    "name": lambda case: {"entity": case.name},
    "uri": lambda case: {"entity_uri": case.name},
    "id": lambda case: {"entity": case.entity_id},
    "predicate": lambda case: {"predicate": case.facts[0]["predicate"]["name"]},
    "object": lambda case: {"object": case.facts[0]["object"]["entity"]["entity_id"]},
    "inactive": lambda case: {"entity": case.name, "include_inactive": True},
    "preferred": lambda case: {"entity": case.name, "include_contradicted": False},
    "sure": lambda case: {"entity": case.name, "min_confidence": 0.5},
    "scope": lambda case: {"entity": case.name, "scope": "team"},
    "valid then": lambda case: {"entity": case.name, "valid_at": year(2016)},
}


@pytest.mark.parametrize("filters", FILTERS)
def test_24_3_1_1_what_is_forgotten_is_in_no_answer_of_any_time(
    filters: str, known: Callable[..., Case], robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    """Before, at and after the tombstone, for agents and administrators, however one asks."""
    case = known()
    asked = FILTERS[filters](case)
    assert listed(robin, as_of=case.then, **asked) != []
    made = tombstone(admin, case.name)
    times = [case.then, just_before(made["created_at"]), made["created_at"], moment(superuser)]
    for client in (robin, admin):
        for as_of in times:
            answer = answered(client, as_of=as_of, **asked)
            assert answer == {"facts": [], "next_cursor": None}
        assert listed(client, **asked) == []


def test_24_3_1_1_what_is_forgotten_cannot_be_read_alone_at_any_time(
    known: Callable[..., Case], robin: httpx.Client, admin: httpx.Client
) -> None:
    case = known()
    tombstone(admin, case.name)
    for client in (robin, admin):
        for params in ({}, {"as_of": case.then}):
            for made in case.facts:
                for path in (f"/v1/facts/{made['fact_id']}", f"/v1/facts/{made['fact_id']}/provenance"):
                    assert error(client.get(path, params=params)) == (404, "fact_not_found")


def test_24_3_1_2_history_is_as_if_the_entity_had_never_appeared(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    """Facts that point to it, its names, notes that mention it, and what others were derived from."""
    name, friend, knows, likes = new("Alice"), new("Bob"), predicate(robin)["name"], predicate(robin)["name"]
    cited, other = note(robin, content=f"{name} and {friend} met"), note(robin)
    source = fact(robin, name, likes, "tea", evidence=[cited])
    pointing = fact(robin, friend, knows, {"entity": name})
    kept = fact(robin, friend, likes, "tea", evidence=[cited, other], derived_from=[source["fact_hash"]])
    robin.post(f"/v1/entities/{source['subject']['entity_id']}/aliases", json={"alias": f"{name} the first"})
    then = moment(superuser)
    tombstone(admin, name)
    for client in (robin, admin):
        for params in ({"as_of": then}, {}):
            (left,) = listed(client, entity=friend, **params)
            assert (left["fact_id"], left["evidence"]) == (kept["fact_id"], [other])
            assert error(client.get(f"/v1/facts/{pointing['fact_id']}", params=params)) == (404, "fact_not_found")
            for named in (name, f"{name} the first", source["subject"]["entity_id"]):
                assert error(client.get(f"/v1/entities/{named}", params=params)) == (404, "entity_not_found")
                assert answered(client, "/v1/entities", name=named, **params)["entities"] == []
            assert answered(client, "/v1/entities", prefix=name, **params)["entities"] == []
            walk = answered(client, f"/v1/facts/{kept['fact_id']}/provenance", **params)
            assert walk["nodes"][1:] == [{"hash": source["fact_hash"], "exists": False}]
        assert client.get(f"/v1/notes/{cited}").status_code == 404


# 24.3.2


@dataclass(frozen=True)
class Held:
    case: Case
    tombstone: dict[str, Any]
    pointing: dict[str, Any]
    pointing_predicate: str


@pytest.fixture
def held(known: Callable[..., Case], robin: httpx.Client, admin: httpx.Client, superuser: Superuser) -> Held:
    """An entity under legal hold, with facts of its own and one that points to it."""
    case, knows = known(), new("knows")
    pointing = fact(robin, new("Bob"), knows, {"entity": case.name})
    case = Case(case.name, case.facts, moment(superuser))
    return Held(case, tombstone(admin, case.name, legal_hold=True, reason="case 24/1"), pointing, knows)


@pytest.mark.parametrize("filters", FILTERS)
def test_24_3_2_1_a_live_query_leaves_out_what_is_held(
    filters: str, held: Held, robin: httpx.Client, admin: httpx.Client
) -> None:
    """For administrators too; a time in the world alone is no looking back."""
    asked = FILTERS[filters](held.case)
    for client in (robin, admin):
        for more in ({}, {"valid_at": year(2019)}):
            assert answered(client, **{**asked, **more}) == {"facts": [], "next_cursor": None}
        path = f"/v1/facts/{held.case.facts[0]['fact_id']}"
        assert error(client.get(path)) == (404, "fact_not_found")
        assert error(client.get(f"{path}/history")) == (404, "fact_not_found")


@pytest.mark.parametrize("filters", FILTERS)
def test_24_3_2_2_what_is_held_is_marked_where_it_is_answered(filters: str, held: Held, admin: httpx.Client) -> None:
    answer = answered(admin, as_of=held.case.then, **FILTERS[filters](held.case))
    assert answer["facts"] != []
    assert {item["tombstone_status"] for item in answer["facts"]} == {"legal_hold"}
    assert set(ids(answer["facts"])) <= set(ids(held.case.facts))


def test_24_3_2_2_a_held_fact_that_is_read_alone_is_marked(held: Held, admin: httpx.Client) -> None:
    made = held.case.facts[0]
    found = read(admin, made["fact_id"], as_of=held.case.then)
    assert (found["tombstone_status"], found["tombstone_notices"]) == ("legal_hold", [notice(held.tombstone)])
    marks = ("tombstone_status", "tombstone_notices")
    assert {name: value for name, value in found.items() if name not in marks} == made


def test_24_3_2_2_what_points_to_the_held_is_marked_and_what_is_free_is_not(
    held: Held, robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    free = fact(robin, new("Carol"), held.pointing_predicate, {"entity": new("Dave")})
    answer = answered(admin, predicate=held.pointing_predicate, as_of=moment(superuser))
    status = {item["fact_id"]: item.get("tombstone_status") for item in answer["facts"]}
    assert status == {held.pointing["fact_id"]: "legal_hold", free["fact_id"]: None}
    assert all("tombstone_status" not in item for item in answer["facts"] if item["fact_id"] == free["fact_id"])
    assert answer["tombstone_notices"] == [notice(held.tombstone)]


@pytest.mark.parametrize("filters", FILTERS)
def test_24_3_2_3_agents_do_not_receive_what_is_held(
    filters: str, held: Held, robin: httpx.Client, wren: httpx.Client
) -> None:
    """Nor do those who wrote it, nor with every scope an agent can have."""
    for client in (robin, wren):
        answer = answered(client, as_of=held.case.then, **FILTERS[filters](held.case))
        assert answer == {"facts": [], "next_cursor": None}
        for made in held.case.facts:
            alone = client.get(f"/v1/facts/{made['fact_id']}", params={"as_of": held.case.then})
            assert error(alone) == (404, "fact_not_found")


def test_24_3_2_3_an_administrator_who_may_not_look_back_does_not_receive_what_is_held(
    held: Held, tenancy: Tenancy, as_key: AsKey
) -> None:
    limited = as_key(tenancy.key("acme", kind="admin", scopes=["facts:read", "admin"], rate_limits=UNLIMITED))
    params = {"entity": held.case.name}
    headers = {"X-Project-Id": "default"}
    refused = limited.get("/v1/facts", params={**params, "as_of": held.case.then}, headers=headers)
    assert error(refused) == (403, "missing_scope")
    assert limited.get("/v1/facts", params=params, headers=headers).json() == {"facts": [], "next_cursor": None}


def test_24_3_2_3_an_administrator_of_another_tenant_does_not_receive_what_is_held(
    held: Held, archive_keys: dict[str, str], as_key: AsKey
) -> None:
    stranger = as_key(archive_keys["admin"], "default")
    asked = {"entity": held.case.name, "as_of": held.case.then}
    assert answered(stranger, **asked) == {"facts": [], "next_cursor": None}


def test_24_3_2_4_what_is_held_is_preserved(held: Held, admin: httpx.Client) -> None:
    before = listed(admin, entity=held.case.name, as_of=held.case.then)
    sent = {"entity": held.case.name, "reason": "they asked", "erase": True}
    assert error(admin.post("/v1/tombstones", json=sent)) == (409, "legal_hold_active")
    assert listed(admin, entity=held.case.name, as_of=held.case.then) == before


@pytest.mark.parametrize("reason", [None, ""], ids=["absent", "empty"])
def test_24_3_2_a_hold_needs_a_documented_basis(
    reason: str | None, known: Callable[..., Case], robin: httpx.Client, admin: httpx.Client
) -> None:
    case = known()
    sent = {"entity": case.name, "legal_hold": True} | ({} if reason is None else {"reason": reason})
    assert admin.post("/v1/tombstones", json=sent).status_code == 400
    assert len(listed(robin, entity=case.name)) == 2


def test_24_3_2_a_hold_keeps_the_basis_it_was_given(held: Held, admin: httpx.Client) -> None:
    kept = answered(admin, f"/v1/tombstones/{held.tombstone['tombstone_id']}")
    assert (kept["reason"], kept["legal_hold"]) == ("case 24/1", True)


def seal(database: TestDatabase, tenant: str = "acme") -> None:
    """What the worker does every few seconds."""
    with psycopg.connect(database.app) as connection:
        connection.execute("SELECT set_scope(%s, '', '', NULL, 'cross_project')", (tenant,))
        connection.execute("SELECT * FROM seal_audit(5000)")


def test_24_3_2_a_hold_is_told_to_the_audit_log(
    held: Held, known: Callable[..., Case], admin: httpx.Client, database: TestDatabase
) -> None:
    plain = tombstone(admin, known().name)
    seal(database)
    told = [event["details"]["tombstone_id"] for event in events(admin, event_type="rtbf_legal_hold_issued")]
    assert told.count(held.tombstone["tombstone_id"]) == 1
    assert plain["tombstone_id"] not in told
    issued = [event["details"]["tombstone_id"] for event in events(admin, event_type="tombstone_issued")]
    assert {plain["tombstone_id"], held.tombstone["tombstone_id"]} <= set(issued)


# 24.3.3


def test_24_3_3_the_notice_has_these_fields(held: Held, admin: httpx.Client) -> None:
    answer = answered(admin, entity=held.case.name, as_of=held.case.then)
    assert set(answer) == {"facts", "next_cursor", "tombstone_notices"}
    assert answer["tombstone_notices"] == [
        {
            "entity_uri": held.case.name,
            "tombstone_id": held.tombstone["tombstone_id"],
            "legal_hold": True,
            "tombstone_created_at": held.tombstone["created_at"],
        }
    ]


def test_24_3_3_there_is_a_notice_for_each_hold_that_applies(
    known: Callable[..., Case], robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    """Of two entities that are held, both; of a fact between two, both; of a free one, none."""
    likes = new("likes")
    one, two, free = known(likes=likes), known(likes=likes), known(likes=likes)
    between = fact(robin, one.name, new("knows"), {"entity": two.name})
    then = moment(superuser)
    holds = [tombstone(admin, case.name, legal_hold=True) for case in (one, two)]
    answer = answered(admin, predicate=likes, as_of=then)
    assert len(answer["facts"]) == 6
    assert answer["tombstone_notices"] == [notice(made) for made in holds]
    assert answered(admin, entity=one.name, predicate=likes, as_of=then)["tombstone_notices"] == [notice(holds[0])]
    assert read(admin, between["fact_id"], as_of=then)["tombstone_notices"] == [notice(made) for made in holds]
    assert "tombstone_notices" not in answered(admin, entity=free.name, as_of=then)


def test_24_3_3_there_is_no_notice_where_no_hold_applies(
    held: Held, known: Callable[..., Case], admin: httpx.Client
) -> None:
    """Not for free entities, nor in a live answer, nor where nothing of the held is found, nor after a revocation."""
    free, forgotten = known(), known()
    tombstone(admin, forgotten.name)
    then = free.then
    early = just_before(held.case.facts[0]["created_at"])
    quiet: list[dict[str, Any]] = [
        {"entity": free.name, "as_of": then},
        {"entity": forgotten.name, "as_of": then},
        {"entity": held.case.name},
        {"entity": held.case.name, "as_of": early},
        {"entity": held.case.name, "as_of": then, "valid_at": year(2010)},
        {"entity": held.case.name, "as_of": then, "scope": "public"},
    ]
    for params in quiet:
        assert set(answered(admin, **params)) == {"facts", "next_cursor"}, params
    assert "tombstone_notices" in answered(admin, entity=held.case.name, as_of=then)
    revoke(admin, held.tombstone)
    after = answered(admin, entity=held.case.name, as_of=then)
    assert set(after) == {"facts", "next_cursor"}
    assert len(after["facts"]) == 2
    assert all("tombstone_status" not in item for item in after["facts"])


def test_24_3_3_a_hold_on_another_scope_does_not_apply(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    """Two holds of one entity: each is told with the facts it hides, and not with the other's."""
    subject, likes = new("user:alice"), predicate(robin)["name"]
    made = {scope: fact(robin, subject, likes, "tea", scope=scope) for scope in ("org_shared", "public")}
    then = moment(superuser)
    holds = {scope: tombstone(admin, subject, legal_hold=True, scope=scope) for scope in made}
    for scope, hold in holds.items():
        answer = answered(admin, entity=subject, scope=scope, as_of=then)
        assert ids(answer["facts"]) == [made[scope]["fact_id"]]
        assert answer["tombstone_notices"] == [notice(hold)], scope
    assert answered(admin, entity=subject, as_of=then)["tombstone_notices"] == [notice(hold) for hold in holds.values()]


def test_24_3_3_a_hold_on_the_other_end_of_a_fact_applies_only_in_its_scope(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    subject, friend = new("user:alice"), new("user:bob")
    made = fact(robin, subject, predicate(robin)["name"], {"entity": friend}, scope="org_shared")
    then = moment(superuser)
    hold = tombstone(admin, subject, legal_hold=True)
    tombstone(admin, friend, legal_hold=True, scope="public")
    answer = answered(admin, entity=subject, as_of=then)
    assert ids(answer["facts"]) == [made["fact_id"]]
    assert answer["tombstone_notices"] == [notice(hold)]


def test_24_3_3_each_page_has_the_notices_of_its_own_facts(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    likes, names = predicate(robin)["name"], [new("one"), new("two"), new("three")]
    for name in names:
        fact(robin, name, likes, "tea")
    then = moment(superuser)
    first, last = (tombstone(admin, name, legal_hold=True) for name in (names[0], names[2]))
    pages = [
        ([item["subject"]["canonical"] for item in page["facts"]], page.get("tombstone_notices"))
        for page in paged(admin, predicate=likes, as_of=then, limit=1)
    ]
    assert pages == [([names[2]], [notice(last)]), ([names[1]], None), ([names[0]], [notice(first)])]


# 24.4


def paged(client: httpx.Client, **params: Any) -> Iterator[dict[str, Any]]:
    """All pages of a list of facts."""
    cursor: str | None = None
    while True:
        page = answered(client, **params, **({"cursor": cursor} if cursor else {}))
        yield page
        if (cursor := page["next_cursor"]) is None:
            return


# What hangs on an entity, table by table; every one of them must have had something to hide.
HANGING = {
    "graph_entities", "graph_entity_aliases", "graph_facts", "graph_fact_evidence", "graph_fact_supersessions",
    "fact_closings", "fact_conflicts", "fact_confidences", "fact_retractions", "fact_derivations", "entity_edges",
    "memory_notes", "memory_history", "note_entity_mentions",
}  # fmt: skip
READABLE = """
    SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND has_table_privilege('palimpsest_app', c.oid, 'SELECT')
    ORDER BY 1"""


@dataclass
class Rows:
    """How many rows of each table speak of an entity, seen as the service's own role with a reach."""

    database: TestDatabase
    words: list[str]
    ids: list[str] = field(default_factory=list)

    def seen(self, reach: str, marks: list[str], *, project: str = "default") -> dict[str, int]:
        found: dict[str, int] = {}
        with psycopg.connect(self.database.app) as connection:
            connection.execute("SELECT set_scope('acme', %s, 'robin', NULL, %s)", (project, reach))
            for (table,) in connection.execute(READABLE.encode()).fetchall():
                query = sql.SQL("SELECT count(*) FROM {} t WHERE t::text ILIKE ANY (%s)").format(sql.Identifier(table))
                row = connection.execute(query, ([f"%{mark}%" for mark in marks],)).fetchone()
                assert row is not None
                if row[0]:
                    found[table] = row[0]
        return found

    def with_reach(self, reach: str) -> dict[str, int]:
        # The audit log has ids and counts of what was done, and never content.
        return {name: count for name, count in self.seen(reach, self.ids + self.words).items() if name != "audit_log"}

    def kept_with_reach(self, reach: str) -> dict[str, int]:
        # What is only to be done ends when it is hidden, and begins anew when it is restored.
        return {name: count for name, count in self.with_reach(reach).items() if name != "embedding_queue"}


@pytest.fixture
def hanging(robin: httpx.Client, database: TestDatabase) -> Rows:
    """Something in every table whose rows hang on an entity, by a word that is nowhere else."""
    word = f"quetzal{uuid4().hex[:12]}"
    name, likes, home, friend = f"{word} of Petén", new("likes"), predicate(robin, cardinality="single"), new("Bob")
    cited = note(robin, content=f"I met {name}")
    changed = robin.patch(f"/v1/notes/{cited}", json={"content": f"I met {name} again", "reason": "more"})
    assert changed.status_code == 200, changed.text
    tea = fact(robin, name, likes, f"{word} tea", evidence=[cited], derived_from=["ab" * 32])
    milk = write(robin, name, likes, f"{word} milk", confidence=0.9)
    assert len(milk["conflicts"]) == 1
    write(robin, name, likes, f"{word} milk", confidence=0.1)
    places = [fact(robin, name, home["name"], f"{word} {start}", valid_from=year(start)) for start in (2015, 2018)]
    knows = fact(robin, name, new("knows"), {"entity": friend})
    back = fact(robin, friend, new("knows"), {"entity": name})
    gone = retract(robin, fact(robin, name, new("hates"), f"{word} fog"))
    alias = robin.post(f"/v1/entities/{tea['subject']['entity_id']}/aliases", json={"alias": f"{word} the bird"})
    assert alias.status_code == 201, alias.text
    facts = [tea, milk["fact"], *places, knows, back, gone]
    return Rows(database, [word], [*ids(facts), tea["subject"]["entity_id"], cited, *milk["conflicts"]])


def test_24_4_the_database_itself_hides_what_is_held(hanging: Rows, admin: httpx.Client) -> None:
    """Without reach legal_hold the service's own role sees no row of it in any table, and with it all of them."""
    before = hanging.kept_with_reach("")
    assert set(before) >= HANGING
    made = tombstone(admin, f"{hanging.words[0]} of Petén", legal_hold=True)
    assert hanging.with_reach("") == {}
    assert hanging.with_reach("cross_project") == {}
    assert hanging.seen("", hanging.words) == {}
    hanging.ids.append(made["tombstone_id"])
    assert hanging.with_reach("") == {}
    assert hanging.with_reach("legal_hold") == {**before, "tombstones": 1}
    revoke(admin, made)
    assert hanging.kept_with_reach("") == before


def test_24_4_the_reach_of_a_hold_does_not_uncover_what_is_forgotten(hanging: Rows, admin: httpx.Client) -> None:
    made = tombstone(admin, f"{hanging.words[0]} of Petén")
    hanging.ids.append(made["tombstone_id"])
    assert hanging.with_reach("") == {}
    assert hanging.with_reach("cross_project") == {}
    assert hanging.with_reach("legal_hold") == {"tombstones": 1}


def test_24_4_the_reach_of_a_hold_ends_at_the_project(hanging: Rows, admin: httpx.Client) -> None:
    tombstone(admin, f"{hanging.words[0]} of Petén", legal_hold=True)
    assert hanging.seen("legal_hold", hanging.ids + hanging.words, project="other") == {}


def test_24_4_what_an_agent_writes_about_the_held_is_hidden_where_it_is_stored(
    hanging: Rows, robin: httpx.Client, admin: httpx.Client
) -> None:
    name = f"{hanging.words[0]} of Petén"
    tombstone(admin, name, legal_hold=True)
    cited = note(robin)
    for target in ("tea", {"entity": new()}):
        write(robin, name, new("likes"), target, evidence=[cited], derived_from=["cd" * 32], valid_from=year(2015))
    assert hanging.with_reach("") == {}


def test_24_4_without_a_reach_there_is_no_tombstone_in_the_database(held: Held, database: TestDatabase) -> None:
    with psycopg.connect(database.app) as connection:
        for reach, count in (("", 0), ("cross_project", 0), ("legal_hold", 1)):
            connection.execute("SELECT set_scope('acme', 'default', 'robin', NULL, %s)", (reach,))
            asked = "SELECT count(*) FROM tombstones WHERE tombstone_id = %s"
            assert connection.execute(asked, (held.tombstone["tombstone_id"],)).fetchone() == (count,)


STATEMENTS: dict[str, dict[str, Any]] = {
    "everything": {},
    "of an entity": {"filters": {"entity"}},
    "by a predicate": {"filters": {"predicate"}},
    "inactive": {"inactive": True},
    "by confidence": {"filters": {"min_confidence"}},
    "the preferred": {"preferred": True},
}


def scans_of_facts(plan: dict[str, Any], *, limited: bool = False) -> Iterator[str]:
    """The conditions of every scan of facts below a limit."""
    limited = limited or plan["Node Type"] == "Limit"
    if limited and plan.get("Relation Name") == "graph_facts" and plan.get("Alias", "").startswith("f"):
        inner = [child.get("Index Cond", "") for child in plan.get("Plans", [])]
        yield " ".join([*(plan.get(name, "") for name in ("Index Cond", "Recheck Cond", "Filter")), *inner])
    for child in plan.get("Plans", []):
        yield from scans_of_facts(child, limited=limited)


@pytest.mark.parametrize("name", STATEMENTS)
def test_24_4_as_of_is_a_parameter_of_the_query_and_bounds_its_scan(
    name: str, known: Callable[..., Case], database: TestDatabase
) -> None:
    """The database leaves out what is younger before it limits, not the service after it has read everything."""
    case = known()
    as_of = datetime.fromisoformat(case.then)
    who = Principal(tenant_id="acme", project_id="default", key_id="", kind="agent")
    when = queries.FactFilter(ReadContext(who=who, as_of=as_of))
    shape = {"filters": set[str](), "by_id": set[str](), "inactive": False, "preferred": False, **STATEMENTS[name]}
    statement = queries.select_facts(when, **shape)
    assert "%(as_of)s" in statement
    assert when.params["as_of"] == as_of
    assert str(as_of.year) not in statement
    params = {
        **when.params,
        "limit": 51,
        "entity": case.name,
        "predicate": '[{"ref": 1, "norm": "likes"}]',
        "min_confidence": 0.5,
    }
    with closing(psycopg.connect(database.app, cursor_factory=psycopg.ClientCursor)) as connection:
        connection.execute("SELECT set_scope('acme', 'default', 'robin', NULL, '')")
        row = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}".encode(), params).fetchone()
    assert row is not None
    scans = list(scans_of_facts(row[0][0]["Plan"]))
    assert scans
    for conditions in scans:
        assert "created_at <=" in conditions, conditions


def test_24_4_a_page_is_full_however_much_was_written_since(robin: httpx.Client) -> None:
    """A filter after the fact would leave the first page empty."""
    subject, likes = new(), predicate(robin)["name"]
    old = [fact(robin, subject, likes, number) for number in range(3)]
    for number in range(3, 9):
        fact(robin, subject, likes, number)
    for asked in ({"entity": subject}, {"predicate": likes}):
        more: dict[str, Any]
        for more in ({}, {"include_inactive": True}):
            page = answered(robin, **asked, **more, as_of=old[-1]["created_at"], limit=2)
            assert ids(page["facts"]) == [old[2]["fact_id"], old[1]["fact_id"]]
            assert page["next_cursor"] is not None


def test_24_4_a_cursor_goes_on_at_the_same_time(robin: httpx.Client, superuser: Superuser) -> None:
    subject, likes = new(), predicate(robin)["name"]
    made = [fact(robin, subject, likes, number) for number in range(5)]
    then = moment(superuser)
    found: list[str] = []
    for page in paged(robin, entity=subject, as_of=then, limit=2):
        found += ids(page["facts"])
        fact(robin, subject, likes, new())
    assert found == ids(made[::-1])
    first = answered(robin, entity=subject, as_of=then, limit=2)
    other = {"entity": subject, "as_of": just_before(then), "limit": 2, "cursor": first["next_cursor"]}
    assert error(robin.get("/v1/facts", params=other)) == (400, "cursor_invalid")


def test_24_4_a_tombstone_between_two_pages_takes_effect_on_the_second(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    likes, names = predicate(robin)["name"], [new("one"), new("two"), new("three")]
    made = [fact(robin, name, likes, "tea") for name in names]
    asked = {"predicate": likes, "as_of": moment(superuser), "limit": 1}
    first = answered(robin, **asked)
    tombstone(admin, names[1])
    second = answered(robin, **asked, cursor=first["next_cursor"])
    assert [ids(page["facts"]) for page in (first, second)] == [[made[2]["fact_id"]], [made[0]["fact_id"]]]
    assert second["next_cursor"] is None


# 24.5.1


QUIET = [
    ("GET", "/v1/facts?entity={entity}"),
    ("GET", "/v1/facts?entity_uri={name}"),
    ("GET", "/v1/facts?entity={alias}"),
    ("GET", "/v1/facts?object={name}"),
    ("GET", "/v1/facts?entity={name}&include_inactive=true"),
    ("GET", "/v1/facts/{fact}"),
    ("GET", "/v1/facts/{fact}/history"),
    ("GET", "/v1/facts/{fact}/provenance"),
    ("GET", "/v1/entities/{entity}"),
    ("GET", "/v1/entities/{name}"),
    ("GET", "/v1/entities/{alias}"),
    ("GET", "/v1/entities?name={name}"),
    ("GET", "/v1/entities?prefix={name}"),
    ("GET", "/v1/notes/{note}"),
    ("GET", "/v1/notes/{note}/history"),
    ("GET", "/v1/conflicts/{conflict}"),
    ("GET", "/v1/conflicts?entity={name}"),
    ("GET", "/v1/tombstones"),
    ("GET", "/v1/tombstones/{tombstone}"),
    ("GET", "/v1/tombstones/{tombstone}/receipt"),
    ("POST", "/v1/facts/{fact}/retract"),
    ("PATCH", "/v1/facts/{fact}"),
    ("POST", "/v1/entities/{entity}/aliases"),
    ("POST", "/v1/conflicts/{conflict}/resolve"),
]
BODIES = {
    "/v1/facts/{fact}": {"valid_to": None},
    "/v1/entities/{entity}/aliases": {"alias": "another name"},
    "/v1/conflicts/{conflict}/resolve": {"value": "water"},
}
LOOKS_BACK = ("/v1/facts?", "/v1/facts/{fact}", "/v1/entities")


@dataclass(frozen=True)
class Subject:
    """Everything by which one could ask after somebody."""

    names: dict[str, str]
    then: str

    def ask(self, client: httpx.Client, method: str, path: str, as_of: str | None = None) -> tuple[int, Any]:
        where = path.format(**self.names)
        if as_of is not None:
            where += f"{'&' if '?' in where else '?'}as_of={as_of.replace('+', '%2B')}"
        body = BODIES.get(path, {}) if method != "GET" else None
        answer = client.request(method, where, json=body)
        said = answer.json()
        said.get("error", {}).pop("request_id", None)
        text = repr(said)
        for name, value in self.names.items():
            text = text.replace(value, name)
        return answer.status_code, text


@pytest.fixture(scope="module")
def subjects(
    service: RunningService, keys: dict[str, str], superuser: Superuser
) -> Iterator[tuple[Subject, Subject, Subject]]:
    """One who is held, one who is forgotten, and one of whom nobody ever spoke."""
    clients = [
        httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {keys[name]}", "X-Project-Id": "default"})
        for name in ("robin", "admin")
    ]
    robin, admin = clients

    def make(**fields: Any) -> Subject:
        name, alias, likes = new("user:alice").replace(" ", "-"), new("nick"), new("likes")
        cited = note(robin, content=f"I met {name}")
        one = fact(robin, name, likes, "tea", evidence=[cited])
        conflict = write(robin, name, likes, "milk")["conflicts"][0]
        fact(robin, new(), new("knows"), {"entity": name})
        entity_id = one["subject"]["entity_id"]
        assert robin.post(f"/v1/entities/{entity_id}/aliases", json={"alias": alias}).status_code == 201
        then = moment(superuser)
        stone = tombstone(admin, name, **fields)["tombstone_id"]
        found = {"name": name, "alias": alias, "fact": one["fact_id"], "entity": entity_id, "note": cited}
        return Subject({**found, "conflict": conflict, "tombstone": stone}, then)

    held, forgotten = make(legal_hold=True), make()
    unknown = {name: str(uuid4()) for name in held.names}
    unknown |= {"name": new("user:nobody").replace(" ", "-"), "alias": new("nobody")}
    yield held, forgotten, Subject(unknown, held.then)
    for client in clients:
        client.close()


@pytest.mark.parametrize(("method", "path"), QUIET)
def test_24_5_1_no_answer_tells_an_agent_of_a_hold(
    method: str, path: str, subjects: tuple[Subject, Subject, Subject], robin: httpx.Client
) -> None:
    """Somebody held, somebody forgotten and somebody nobody ever spoke of are answered word for word alike."""
    held, forgotten, unknown = subjects
    times = [None, held.then] if method == "GET" and path.startswith(LOOKS_BACK) else [None]
    for as_of in times:
        expected = unknown.ask(robin, method, path, as_of)
        assert held.ask(robin, method, path, as_of) == expected
        assert forgotten.ask(robin, method, path, as_of) == expected
        assert "notices" not in expected[1]
        assert "legal_hold" not in expected[1]


@pytest.mark.parametrize(("method", "path"), [pair for pair in QUIET if "tombstone" not in pair[1]])
def test_24_5_1_a_live_answer_tells_an_administrator_no_more(
    method: str, path: str, subjects: tuple[Subject, Subject, Subject], admin: httpx.Client
) -> None:
    """24.3.2 rule 1 for administrators: without as_of the held are as absent as the unknown."""
    held, forgotten, unknown = subjects
    assert held.ask(admin, method, path) == forgotten.ask(admin, method, path) == unknown.ask(admin, method, path)


def test_24_5_1_lists_that_would_show_the_held_go_on_without_them(
    held: Held, robin: httpx.Client, superuser: Superuser
) -> None:
    """200, silently filtered: what is free is there, in full pages, and nothing says that there was more."""
    free = [fact(robin, new("Carol"), held.pointing_predicate, {"entity": new()}) for _ in range(2)]
    asked = {"predicate": held.pointing_predicate, "as_of": moment(superuser)}
    assert answered(robin, **asked) == {"facts": free[::-1], "next_cursor": None}
    page = answered(robin, **asked, limit=1)
    assert set(page) == {"facts", "next_cursor"}
    rest = answered(robin, **asked, limit=1, cursor=page["next_cursor"])
    assert (ids(rest["facts"]), rest["next_cursor"]) == ([free[0]["fact_id"]], None)


def test_24_5_1_an_agent_who_writes_about_the_held_is_answered_as_about_the_unknown(
    held: Held, robin: httpx.Client
) -> None:
    likes = predicate(robin)["name"]
    answers: list[dict[str, Any]] = []
    for name in (held.case.name, new("user:nobody")):
        sent = {"subject": name, "predicate": likes, "object": {"value": "tea"}, "valid_from": year(2015)}
        answer = robin.post("/v1/facts", json=sent)
        assert answer.status_code == 201, answer.text
        told = answer.json()
        own = ("fact_id", "created_at", "fact_hash", "subject")
        kind = told["fact"]["subject"]["kind"]
        answers.append({**told, "fact": {k: v for k, v in told["fact"].items() if k not in own} | {"kind": kind}})
    assert answers[0] == answers[1]


DENIED = ["Denied Dora", "user:Carol Jones", "José of Cádiz"]


@dataclass(frozen=True)
class Guarded:
    """Services that share a database with the others and deny administrators the past of some, or of all."""

    some: RunningService
    every: RunningService


@pytest.fixture(scope="module")
def guarded(database: TestDatabase) -> Iterator[Guarded]:
    # The last one as a Mac would have typed it: accents apart from their letters.
    names = "  denied   DORA , user:Carol Jones,Jose\u0301 of Ca\u0301diz"
    with (
        start_service(database.url("app"), LEGAL_HOLD_DENIED=names) as some,
        start_service(database.url("app"), LEGAL_HOLD_DENIED="*") as every,
    ):
        yield Guarded(some, every)


@pytest.fixture(scope="module")
def denied(service: RunningService, keys: dict[str, str], superuser: Superuser) -> Iterator[dict[str, Case]]:
    """Entities under legal hold, by name; the last one is not among the denied."""
    headers = {name: {"Authorization": f"Bearer {keys[name]}", "X-Project-Id": "default"} for name in keys}
    with (
        httpx.Client(base_url=service.url, headers=headers["robin"]) as robin,
        httpx.Client(base_url=service.url, headers=headers["admin"]) as admin,
    ):
        cases: dict[str, Case] = {}
        for name in [*DENIED, "Allowed Ann"]:
            made = [fact(robin, name, "guarded likes", "tea", valid_from=year(2015))]
            made.append(fact(robin, f"friend of {name}", "guarded knows", {"entity": name}, valid_from=year(2015)))
            cases[name] = Case(made[0]["subject"]["canonical"], made, moment(superuser))
            tombstone(admin, name, legal_hold=True)
        yield cases


@pytest.fixture
def at(keys: dict[str, str]) -> Iterator[Callable[..., httpx.Client]]:
    """Clients of a service by the name of their key."""
    made: list[httpx.Client] = []

    def build(service: RunningService, name: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {keys[name]}", "X-Project-Id": "default"}
        made.append(httpx.Client(base_url=service.url, headers=headers, timeout=30))
        return made[-1]

    yield build
    for client in made:
        client.close()


def ways(case: Case) -> list[tuple[str, dict[str, str]]]:
    """The questions that would show something of it."""
    return [
        ("/v1/facts", {"entity": case.name, "as_of": case.then}),
        ("/v1/facts", {"entity": case.entity_id, "as_of": case.then, "include_inactive": "true"}),
        ("/v1/facts", {"object": case.name, "as_of": case.then}),
        ("/v1/facts", {"as_of": case.then}),
        (f"/v1/facts/{case.facts[0]['fact_id']}", {"as_of": case.then}),
        (f"/v1/facts/{case.facts[1]['fact_id']}", {"as_of": case.then}),
        (f"/v1/entities/{case.entity_id}", {"as_of": case.then}),
        ("/v1/entities", {"name": case.name, "as_of": case.then}),
    ]


@pytest.mark.parametrize("name", DENIED)
def test_24_5_1_an_administrator_is_refused_where_the_deployment_says_so(
    name: str, guarded: Guarded, denied: dict[str, Case], at: Callable[..., httpx.Client]
) -> None:
    """However the name is spelt in the setting: names are the same by their normal form."""
    admin = at(guarded.some, "admin")
    for path, params in ways(denied[name]):
        assert error(admin.get(path, params=params)) == (403, "as_of_legal_hold_forbidden"), (path, params)


@pytest.mark.parametrize("name", DENIED)
def test_24_5_1_an_agent_is_never_refused_for_a_hold(
    name: str, guarded: Guarded, denied: dict[str, Case], at: Callable[..., httpx.Client], robin: httpx.Client
) -> None:
    """Where an administrator gets 403 an agent gets what it gets where nothing is denied."""
    for service in (guarded.some, guarded.every):
        agent = at(service, "robin")
        for path, params in ways(denied[name]):
            answer, usual = agent.get(path, params=params), robin.get(path, params=params)
            assert answer.status_code == usual.status_code
            assert answer.status_code == (404 if path.count("/") > 2 else 200)
            if answer.status_code == 200:
                listing = answer.json()
                assert "tombstone_notices" not in listing
                assert listing == {**usual.json(), "next_cursor": listing["next_cursor"]}


def test_24_5_1_an_administrator_still_reads_the_held_who_are_not_denied(
    guarded: Guarded, denied: dict[str, Case], at: Callable[..., httpx.Client]
) -> None:
    admin, case = at(guarded.some, "admin"), denied["Allowed Ann"]
    answer = answered(admin, entity=case.name, as_of=case.then)
    assert ids(answer["facts"]) == [case.facts[0]["fact_id"]]
    assert [item["entity_uri"] for item in answer["tombstone_notices"]] == [case.name]


def test_24_5_1_a_star_denies_everybody_who_is_held_and_nobody_else(
    guarded: Guarded,
    denied: dict[str, Case],
    known: Callable[..., Case],
    at: Callable[..., httpx.Client],
) -> None:
    admin, free = at(guarded.every, "admin"), known()
    for case in denied.values():
        for path, params in ways(case):
            assert error(admin.get(path, params=params)) == (403, "as_of_legal_hold_forbidden")
    assert len(answered(admin, entity=free.name, as_of=free.then)["facts"]) == 2


def test_24_5_1_what_would_show_nothing_of_the_denied_is_not_refused(
    guarded: Guarded, denied: dict[str, Case], at: Callable[..., httpx.Client]
) -> None:
    """Live, before anything was known of them, or at a time of which nothing was said."""
    admin, case = at(guarded.some, "admin"), denied["Denied Dora"]
    quiet = [
        {"entity": case.name},
        {"entity": case.name, "as_of": just_before(case.facts[0]["created_at"])},
        {"entity": case.name, "as_of": case.then, "valid_at": year(2010)},
        {"entity": case.name, "as_of": case.then, "scope": "public"},
    ]
    for params in quiet:
        assert answered(admin, **params) == {"facts": [], "next_cursor": None}


# 24.5.2


def test_24_5_2_an_administrator_gets_facts_and_notices(held: Held, admin: httpx.Client) -> None:
    answer = answered(admin, entity_uri=held.case.name, as_of=held.case.then, scope="team")
    plain = [{k: v for k, v in item.items() if k != "tombstone_status"} for item in answer["facts"]]
    assert plain == held.case.facts[::-1]
    assert answer["tombstone_notices"] == [notice(held.tombstone)]


def test_24_5_2_an_agent_gets_facts_and_no_notices(held: Held, robin: httpx.Client) -> None:
    """`tombstone_notices` is absent rather than empty, so that nobody can tell one absence from another."""
    answer = answered(robin, entity_uri=held.case.name, as_of=held.case.then, scope="team")
    assert answer == {"facts": [], "next_cursor": None}


# 24.6


def test_24_6_each_error_has_its_code_and_status(
    archive: Archive, guarded: Guarded, denied: dict[str, Case], at: Callable[..., httpx.Client]
) -> None:
    def asked(client: httpx.Client, **params: str) -> tuple[int, str]:
        return error(client.get("/v1/facts", params=params))

    admin, dora = at(guarded.some, "admin"), denied["Denied Dora"]
    assert asked(archive.agent, as_of="soon") == (400, "as_of_invalid_timestamp")
    assert asked(archive.agent, as_of=from_now(60)) == (400, "as_of_future")
    assert asked(archive.agent, as_of=archive.below) == (400, "as_of_before_retention_floor")
    assert asked(admin, entity=dora.name, as_of=dora.then) == (403, "as_of_legal_hold_forbidden")


def test_24_6_a_refusal_says_nothing_of_what_it_keeps(
    guarded: Guarded, denied: dict[str, Case], at: Callable[..., httpx.Client]
) -> None:
    dora = denied["Denied Dora"]
    answer = at(guarded.some, "admin").get("/v1/facts", params={"as_of": dora.then})
    assert error(answer) == (403, "as_of_legal_hold_forbidden")
    for secret in ("dora", dora.entity_id, *ids(dora.facts), "tea"):
        assert secret not in answer.text.lower()
