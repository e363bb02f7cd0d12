"""Sources: their trust, which agents may use their name, and the trust of their facts."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.access import Principal
from app.facts.sources import service as sources
from app.jobs import queries
from app.jobs.registry import Job
from app.main import open_database
from app.retrieval.trust import Authority, Identity, Record, TrustMode, judge_history, judge_source
from tests.conftest import Tenancy, TestDatabase
from tests.facts.shared import Superuser, error, fact, finish_job, ids, listed, new, predicate, read, write

DAYS_30 = timedelta(days=30)
UNKNOWN = 0.255

# The formula


def test_an_unknown_source_where_nobody_judges() -> None:
    assert judge_source(Record(), "off") == pytest.approx(0.255)


def test_a_local_key_of_the_same_authority_with_a_warning() -> None:
    known = Record(identity="local_key", authority="same_authority")
    assert judge_source(known, "warn") == pytest.approx(0.525)


def test_the_best_source_there_can_be() -> None:
    best = Record(identity="signed_manifest", authority="write_token", facts=100, known_for=DAYS_30)
    assert judge_source(best, "enforce") == 1.0


WEIGHED: list[tuple[dict[str, Any], float]] = [
    ({"identity": "signed_manifest"}, 0.35 * 1.0),
    ({"identity": "manifest"}, 0.35 * 0.7),
    ({"identity": "capability_token"}, 0.35 * 0.5),
    ({"identity": "local_key"}, 0.35 * 0.4),
    ({"identity": "syntactic"}, 0.35 * 0.1),
    ({"identity": "none"}, 0.0),
    ({"authority": "write_token"}, 0.25 * 1.0),
    ({"authority": "admin"}, 0.25 * 0.9),
    ({"authority": "same_authority"}, 0.25 * 0.7),
    ({"authority": "federated"}, 0.25 * 0.5),
    ({"authority": "other"}, 0.25 * 0.2),
]


@pytest.mark.parametrize(("known", "part"), WEIGHED, ids=str)
def test_identity_and_authority_weigh_as_agreed(known: dict[str, Any], part: float) -> None:
    rest = 0.30 * 0.5 + (0.25 * 0.2 if "identity" in known else 0.35 * 0.1)
    weights: dict[TrustMode, float] = {"enforce": 1.0, "warn": 0.6, "off": 0.2}
    for mode, weight in weights.items():
        assert judge_source(Record(**known), mode) == pytest.approx(rest + part + 0.10 * weight)


HISTORIES: list[tuple[int, int, timedelta, float]] = [
    (0, 0, timedelta(0), 0.5),
    (9, 0, DAYS_30, 0.5),
    (10, 0, timedelta(0), 0.7),
    (99, 0, DAYS_30, 0.7),
    (100, 0, DAYS_30, 1.0),
    (100, 0, DAYS_30 - timedelta(seconds=1), 0.7),
    (100, 1, DAYS_30, 0.7),
    (100, 4, DAYS_30, 0.7),
    (100, 5, DAYS_30, 0.3),
    (100, 100, DAYS_30, 0.3),
    (20, 1, DAYS_30, 0.3),
    (21, 1, DAYS_30, 0.7),
    (1, 1, timedelta(0), 0.3),
    (1000, 0, timedelta(days=365), 1.0),
]


@pytest.mark.parametrize(("facts", "failures", "known_for", "worth"), HISTORIES, ids=str)
def test_a_history_is_worth_what_came_of_it(facts: int, failures: int, known_for: timedelta, worth: float) -> None:
    known = Record(facts=facts, failures=failures, known_for=known_for)
    assert judge_history(known) == worth
    assert judge_source(known, "off") == pytest.approx(0.255 - 0.15 + 0.30 * worth)


records = st.builds(
    Record,
    identity=st.sampled_from(get_args(Identity)),
    authority=st.sampled_from(get_args(Authority)),
    blocklisted=st.booleans(),
    facts=st.integers(0, 1000),
    failures=st.integers(0, 1000),
    known_for=st.timedeltas(timedelta(0), timedelta(days=1000)),
)
modes = st.sampled_from(get_args(TrustMode))
STRONGEST_FIRST: tuple[Identity, ...] = (
    "signed_manifest",
    "manifest",
    "capability_token",
    "local_key",
    "syntactic",
    "none",
)


@given(records, modes)
def test_trust_lies_between_nothing_and_all(known: Record, mode: TrustMode) -> None:
    trust = judge_source(known, mode)
    assert 0.0 <= trust <= 1.0
    assert (trust == 0.0) == known.blocklisted


@given(records, modes)
def test_a_better_identity_is_never_trusted_less(known: Record, mode: TrustMode) -> None:
    fields = {name: getattr(known, name) for name in known.__struct_fields__ if name != "identity"}
    judged = [judge_source(Record(identity=identity, **fields), mode) for identity in STRONGEST_FIRST]
    assert judged == sorted(judged, reverse=True)
    assert known.blocklisted or len(set(judged)) == len(STRONGEST_FIRST)


@given(records, modes)
def test_a_failure_more_never_helps(known: Record, mode: TrustMode) -> None:
    fields = {name: getattr(known, name) for name in known.__struct_fields__ if name != "failures"}
    assert judge_source(Record(failures=known.failures + 1, **fields), mode) <= judge_source(known, mode)


# Registered


def put(admin: httpx.Client, source: str, **fields: Any) -> dict[str, Any]:
    answer = admin.put("/v1/sources", json={"source": source, **fields})
    assert answer.status_code in (200, 201), answer.text
    assert (answer.status_code == 201) == answer.json()["created"]
    return answer.json()


def everything(client: httpx.Client) -> dict[str, dict[str, Any]]:
    """All sources by their names."""
    found: dict[str, dict[str, Any]] = {}
    cursor: str | None = None
    while True:
        page = client.get("/v1/sources", params={"limit": 200, **({"cursor": cursor} if cursor else {})}).json()
        found |= {item["source"]: item for item in page["sources"]}
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def test_a_source_is_registered_listed_and_changed(admin: httpx.Client, superuser: Superuser) -> None:
    name = new("crm")
    answer = put(admin, f" {name} ", identity="local_key", authority="same_authority", agents=["robin", "robin"])
    made = answer["source"]
    assert set(answer) == {"source", "created", "job_id"}
    assert answer["created"] is True
    assert made == {
        "source_id": made["source_id"],
        "source": name,
        "identity": "local_key",
        "authority": "same_authority",
        "agents": ["robin"],
        "blocklisted": False,
        "trust": pytest.approx(0.525 - 0.06 + 0.02),
        "trust_mode": "off",
        "created_at": made["created_at"],
        "updated_at": made["created_at"],
    }
    job = superuser.execute("SELECT kind, project_id FROM jobs WHERE job_id = %s", (answer["job_id"],)).fetchone()
    assert job == {"kind": "trust", "project_id": "default"}
    assert everything(admin)[name] == made
    changed = put(admin, name, identity="manifest")
    assert changed["created"] is False
    after = changed["source"]
    assert (after["source_id"], after["created_at"]) == (made["source_id"], made["created_at"])
    assert (after["identity"], after["authority"], after["agents"]) == ("manifest", "other", [])
    assert after["updated_at"] > made["updated_at"]
    assert everything(admin)[name] == after


def test_what_is_left_out_is_what_is_known_of_a_stranger(admin: httpx.Client) -> None:
    made = put(admin, new("crm"))["source"]
    assert (made["identity"], made["authority"], made["agents"], made["blocklisted"]) == (
        "syntactic",
        "other",
        [],
        False,
    )
    assert made["trust"] == pytest.approx(UNKNOWN)


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"source": ""},
        {"source": "   "},
        {"source": "x" * 501},
        {"source": "crm", "identity": "passport"},
        {"source": "crm", "authority": "king"},
        {"source": "crm", "agents": "robin"},
        {"source": "crm", "agents": ["not an agent"]},
        {"source": "crm", "agents": ["a"] * 101},
        {"source": "crm", "blocklisted": "yes"},
        {"source": "crm", "trust": 1.0},
    ],
    ids=lambda item: str(item)[:50],
)
def test_a_malformed_source_is_refused(admin: httpx.Client, sent: dict[str, Any]) -> None:
    answer = admin.put("/v1/sources", json=sent)
    assert answer.status_code == 400, answer.text


def test_sources_are_listed_by_name_page_by_page(admin: httpx.Client) -> None:
    made = sorted(put(admin, new("paged"))["source"]["source"] for _ in range(5))
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = admin.get("/v1/sources", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        found += [item["source"] for item in page["sources"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert len(page["sources"]) == 2
    assert found == sorted(found)
    assert [name for name in found if name.startswith("paged")] == made


def test_only_administrators_register_sources(robin: httpx.Client, admin: httpx.Client) -> None:
    name = new("crm")
    assert error(robin.put("/v1/sources", json={"source": name})) == (403, "wrong_key_kind")
    assert name not in everything(admin)


def test_sources_are_read_by_who_may_read_facts(
    robin: httpx.Client, admin: httpx.Client, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    made = put(admin, new("crm"))["source"]
    assert everything(robin)[made["source"]] == made
    noter = as_key(tenancy.key("acme", agent_id="wren", scopes=["notes:read"]))
    assert error(noter.get("/v1/sources")) == (403, "missing_scope")


def test_a_source_belongs_to_its_project(
    admin: httpx.Client, elsewhere: httpx.Client, rival: httpx.Client, robin: httpx.Client
) -> None:
    name = new("crm")
    put(admin, name, blocklisted=True)
    for stranger in (elsewhere, rival):
        assert name not in everything(stranger)
        assert fact(stranger, new(), new("likes"), "tea", source=name)["source_trust"] == pytest.approx(UNKNOWN)
    assert fact(robin, new(), new("likes"), "tea", source=name)["source_trust"] == 0


# What facts get


def test_a_fact_without_a_source_is_trusted_half(robin: httpx.Client) -> None:
    assert fact(robin, new(), new("likes"), "tea")["source_trust"] == 0.5


def test_a_fact_of_an_unknown_source_is_judged_as_such(robin: httpx.Client) -> None:
    made = fact(robin, new(), new("likes"), "tea", source=new("hearsay"))
    assert made["source_trust"] == pytest.approx(UNKNOWN)
    assert read(robin, made["fact_id"])["source_trust"] == made["source_trust"]


def test_a_fact_gets_the_trust_of_its_source(robin: httpx.Client, admin: httpx.Client, superuser: Superuser) -> None:
    name = new("crm")
    trust = put(admin, name, identity="signed_manifest", authority="write_token")["source"]["trust"]
    assert trust == pytest.approx(0.35 + 0.15 + 0.25 + 0.02)
    made = fact(robin, new(), new("knows"), {"entity": new()}, source=f" {name} ")
    assert (made["source"], made["source_trust"]) == (name, pytest.approx(trust))
    line = superuser.execute("SELECT source_trust FROM entity_edges WHERE edge_id = %s", (made["fact_id"],)).fetchone()
    assert line == {"source_trust": pytest.approx(trust)}
    listed_one = listed(robin, source=name)
    assert [item["source_trust"] for item in listed_one] == [pytest.approx(trust)]


def test_each_fact_of_a_batch_gets_the_trust_of_its_own_source(robin: httpx.Client, admin: httpx.Client) -> None:
    good, bad, hearsay = new("good"), new("bad"), new("hearsay")
    put(admin, good, identity="manifest", authority="admin")
    put(admin, bad, blocklisted=True)
    sent = [
        {"subject": new(), "predicate": new("likes"), "object": {"value": "tea"}, "source": source}
        for source in (good, bad, None, hearsay, good)
    ]
    results = robin.post("/v1/facts/batch", json={"facts": sent}).json()["results"]
    high = 0.35 * 0.7 + 0.15 + 0.25 * 0.9 + 0.02
    assert [item["fact"]["source_trust"] for item in results] == [
        pytest.approx(trust) for trust in (high, 0.0, 0.5, UNKNOWN, high)
    ]


def test_a_stranger_who_uses_a_registered_name_is_judged_as_unknown(
    robin: httpx.Client, wren: httpx.Client, admin: httpx.Client
) -> None:
    name = new("crm")
    trust = put(admin, name, identity="signed_manifest", authority="write_token", agents=["robin"])["source"]["trust"]
    assert fact(robin, new(), new("likes"), "tea", source=name)["source_trust"] == pytest.approx(trust)
    assert fact(wren, new(), new("likes"), "tea", source=name)["source_trust"] == pytest.approx(UNKNOWN)
    put(admin, name, identity="signed_manifest", authority="write_token", agents=["robin", "wren"])
    assert fact(wren, new(), new("likes"), "tea", source=name)["source_trust"] == pytest.approx(trust)


def test_a_stranger_does_not_profit_from_the_history_of_a_name(
    robin: httpx.Client, wren: httpx.Client, admin: httpx.Client
) -> None:
    name = new("crm")
    known(robin, name, facts=12)
    put(admin, name, agents=["robin"])
    assert fact(robin, new(), new("likes"), "tea", source=name)["source_trust"] == pytest.approx(UNKNOWN + 0.06)
    assert fact(wren, new(), new("likes"), "tea", source=name)["source_trust"] == pytest.approx(UNKNOWN)


def test_a_stranger_cannot_spoil_the_history_of_a_name(
    robin: httpx.Client, wren: httpx.Client, admin: httpx.Client
) -> None:
    name = new("crm")
    before = put(admin, name, agents=["robin"])["source"]["trust"]
    for made in known(wren, name, facts=3):
        wren.post(f"/v1/facts/{made}/retract", json={})
    assert everything(admin)[name]["trust"] == before


def test_a_blocklisted_source_is_trusted_with_nothing_whoever_speaks(
    robin: httpx.Client, wren: httpx.Client, admin: httpx.Client
) -> None:
    name = new("crm")
    put(admin, name, identity="signed_manifest", authority="write_token", agents=["robin"], blocklisted=True)
    for client in (robin, wren):
        assert fact(client, new(), new("likes"), "tea", source=name)["source_trust"] == 0


def known(client: httpx.Client, source: str, *, facts: int) -> list[str]:
    """So many facts of a source, in one batch."""
    name = predicate(client)["name"]
    sent = [
        {"subject": new(), "predicate": name, "object": {"value": number}, "source": source} for number in range(facts)
    ]
    answer = client.post("/v1/facts/batch", json={"facts": sent})
    assert answer.status_code == 200, answer.text
    return [item["fact"]["fact_id"] for item in answer.json()["results"]]


def test_a_source_is_judged_by_how_its_facts_fared(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = new("crm")
    made = known(robin, name, facts=9)

    def history() -> float:
        put(admin, name)
        return (everything(admin)[name]["trust"] - 0.105) / 0.30

    assert history() == pytest.approx(0.5)
    made += known(robin, name, facts=91)
    assert history() == pytest.approx(0.7)
    superuser.execute("UPDATE graph_facts SET created_at = created_at - interval '31 days' WHERE source = %s", (name,))
    assert history() == pytest.approx(1.0)
    robin.post(f"/v1/facts/{made[0]}/retract", json={})
    assert history() == pytest.approx(0.7)
    for fact_id in made[1:5]:
        robin.post(f"/v1/facts/{fact_id}/retract", json={})
    assert history() == pytest.approx(0.3)


def test_what_lost_a_conflict_counts_as_a_failure_and_what_decayed_does_not(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    loser, aged = new("crm"), new("crm")
    subject, name = new(), new("born in")
    fact(robin, subject, name, "Bern", source=loser)
    second = write(robin, subject, name, "Basel")
    robin.post(
        f"/v1/conflicts/{second['conflicts'][0]}/resolve", json={"winner": second["fact"]["fact_id"]}
    ).raise_for_status()
    decays = new("decays")
    stale = fact(robin, new(), decays, "tea", source=aged)
    superuser.execute(
        "UPDATE graph_facts SET created_at = created_at - interval '1 day' WHERE fact_id = %s", (stale["fact_id"],)
    )
    policy = admin.post("/v1/decay/policies", json={"relation": decays, "mode": "retract", "ttl_s": 60}).json()
    assert admin.post("/v1/decay/sweep", json={}).json()["affected"] == 1
    admin.delete(f"/v1/decay/policies/{policy['policy']['policy_id']}")
    for source in (loser, aged):
        put(admin, source)
    trust = everything(admin)
    assert trust[loser]["trust"] == pytest.approx(UNKNOWN - 0.06)
    assert trust[aged]["trust"] == pytest.approx(UNKNOWN)


# What is already written


def trusts(superuser: Superuser, fact_id: str) -> tuple[float, float]:
    """What fact and edge say."""
    row = superuser.execute(
        "SELECT f.source_trust AS fact, x.source_trust AS edge FROM graph_facts f "
        "JOIN entity_edges x ON x.tenant_id = f.tenant_id AND x.edge_id = f.fact_id WHERE f.fact_id = %s",
        (fact_id,),
    ).fetchone()
    assert row is not None
    return row["fact"], row["edge"]


def test_a_job_gives_facts_already_written_the_new_trust(
    robin: httpx.Client,
    wren: httpx.Client,
    admin: httpx.Client,
    elsewhere: httpx.Client,
    superuser: Superuser,
    database: TestDatabase,
) -> None:
    name = new("crm")
    mine, theirs, beside = (
        fact(client, new(), new("knows"), {"entity": new()}, source=name)["fact_id"]
        for client in (robin, wren, elsewhere)
    )
    private = fact(robin, new(), new("knows"), {"entity": new()}, source=name, scope="agent_private")["fact_id"]
    plain = fact(robin, new(), new("knows"), {"entity": new()})["fact_id"]
    blocked = put(admin, name, blocklisted=True)
    assert finish_job(database, superuser, blocked["job_id"])["status"] == "completed"
    assert admin.get(f"/v1/jobs/{blocked['job_id']}").json()["status"] == "completed"
    for fact_id in (mine, theirs, private):
        assert trusts(superuser, fact_id) == (0, 0)
    assert read(robin, mine)["source_trust"] == 0
    assert trusts(superuser, beside) == (pytest.approx(UNKNOWN), pytest.approx(UNKNOWN))
    assert trusts(superuser, plain) == (0.5, 0.5)
    freed = put(admin, name, identity="manifest", agents=["robin"])
    finish_job(database, superuser, freed["job_id"])
    trust = pytest.approx(freed["source"]["trust"])
    assert trusts(superuser, mine) == (trust, trust)
    assert trusts(superuser, private) == (trust, trust)
    assert trusts(superuser, theirs) == (pytest.approx(UNKNOWN), pytest.approx(UNKNOWN)), "a stranger to that name"


def test_the_job_reaches_every_fact_however_many(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, database: TestDatabase
) -> None:
    name = new("crm")
    known(robin, name, facts=1000)
    known(robin, name, facts=10)
    finish_job(database, superuser, put(admin, name, blocklisted=True)["job_id"])
    left = superuser.execute(
        "SELECT count(*) AS facts FROM graph_facts WHERE source = %s AND source_trust <> 0", (name,)
    ).fetchone()
    assert left == {"facts": 0}


def test_registering_twice_before_the_job_ran_makes_one_job_that_knows_the_last(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, database: TestDatabase
) -> None:
    name = new("crm")
    made = fact(robin, new(), new("knows"), {"entity": new()}, source=name)["fact_id"]
    first, second = put(admin, name), put(admin, name, blocklisted=True)
    assert first["job_id"] == second["job_id"]
    finish_job(database, superuser, first["job_id"])
    assert trusts(superuser, made) == (0, 0)


def test_what_changes_while_the_job_runs_is_not_lost(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, database: TestDatabase
) -> None:
    name = new("crm")
    made = fact(robin, new(), new("knows"), {"entity": new()}, source=name)["fact_id"]
    superuser.execute("DELETE FROM jobs WHERE kind = 'trust'")
    put(admin, name, identity="manifest")

    async def run() -> str:
        db = open_database(database.settings())
        await db.open()
        try:
            (row,) = await db.call(queries.LEASE, ("slow", ["trust"], 10, 60.0, ""))
            await sources.refresh_trust(Job(db, "slow", row))
            job_id = await asyncio.to_thread(lambda: put(admin, name, blocklisted=True)["job_id"])
            await db.call(queries.FINISH, ("acme", "default", row["job_id"], "slow", "completed", None, None))
        finally:
            await db.close()
        return job_id

    finish_job(database, superuser, asyncio.run(run()))
    assert trusts(superuser, made) == (0, 0)


def trust_jobs(superuser: Superuser) -> list[str]:
    """Makes the refreshes of trust that wait for their time due, and returns them."""
    rows = superuser.execute(
        "UPDATE jobs SET available_at = now() WHERE kind = 'trust' AND status = 'pending' "
        "AND NOT payload ? 'repeated' RETURNING job_id"
    ).fetchall()
    return [str(row["job_id"]) for row in rows]


def test_a_retraction_changes_the_trust_of_what_its_source_said_before(
    robin: httpx.Client, superuser: Superuser, database: TestDatabase
) -> None:
    name = new("crm")
    wrong, right, private = (
        fact(robin, new(), new("knows"), {"entity": new()}, source=name, scope=scope)["fact_id"]
        for scope in ("agent_private", "project_shared", "agent_private")
    )
    superuser.execute("DELETE FROM jobs WHERE kind = 'trust'")
    robin.post(f"/v1/facts/{wrong}/retract", json={}).raise_for_status()
    (job_id,) = trust_jobs(superuser)
    assert name not in str(superuser.execute("SELECT * FROM jobs WHERE job_id = %s", (job_id,)).fetchone())
    assert finish_job(database, superuser, job_id)["status"] == "completed"
    failing = pytest.approx(UNKNOWN - 0.06)
    assert trusts(superuser, right) == trusts(superuser, private) == (failing, failing)


def test_a_history_that_grew_reaches_the_first_facts_within_a_day(
    robin: httpx.Client, superuser: Superuser, database: TestDatabase
) -> None:
    name = new("crm")
    first = fact(robin, new(), new("knows"), {"entity": new()}, source=name)["fact_id"]
    known(robin, name, facts=9)
    superuser.execute("DELETE FROM jobs WHERE kind = 'trust'")
    made = superuser.execute("SELECT * FROM schedule_trust(clock_timestamp())").fetchall()
    assert superuser.execute("SELECT * FROM schedule_trust(clock_timestamp())").fetchall() == []
    for row in made:
        assert finish_job(database, superuser, str(row["job_id"]))["status"] == "completed"
    assert trusts(superuser, first) == (pytest.approx(UNKNOWN + 0.06), pytest.approx(UNKNOWN + 0.06))


def test_every_project_trusts_its_own_pipeline(
    robin: httpx.Client, admin: httpx.Client, elsewhere: httpx.Client, superuser: Superuser
) -> None:
    listed_one = everything(robin)["pipeline"]
    assert (listed_one["identity"], listed_one["authority"]) == ("local_key", "same_authority")
    assert listed_one["trust"] == pytest.approx(0.485)
    assert everything(robin)["pipeline"] == listed_one
    made = fact(elsewhere, new(), new("likes"), "tea", source="pipeline")
    assert made["source_trust"] == pytest.approx(0.485)
    try:
        changed = put(admin, "pipeline", blocklisted=True)["source"]
        assert everything(robin)["pipeline"] == changed
        assert everything(elsewhere)["pipeline"]["blocklisted"] is False
    finally:
        superuser.execute("DELETE FROM sources WHERE source = 'pipeline'")


# How much it counts


@pytest.fixture
def trust_mode(admin: httpx.Client) -> Iterator[Callable[[str], None]]:
    """Sets the project's mode, and puts it back afterwards."""

    def choose(mode: str) -> None:
        answer = admin.patch("/v1/admin/projects/default", json={"trust_mode": mode})
        assert answer.status_code == 200, answer.text
        assert answer.json()["project"]["settings"].get("trust_mode", "off") == mode

    yield choose
    choose("off")


@pytest.mark.parametrize(("mode", "added"), [("off", 0.02), ("warn", 0.06), ("enforce", 0.1)])
def test_the_mode_of_the_project_is_part_of_the_trust(
    robin: httpx.Client, admin: httpx.Client, trust_mode: Callable[[str], None], mode: str, added: float
) -> None:
    trust_mode(mode)
    name = new("crm")
    made = put(admin, name, identity="local_key", authority="same_authority")["source"]
    assert (made["trust_mode"], made["trust"]) == (mode, pytest.approx(0.465 + added))
    assert fact(robin, new(), new("likes"), "tea", source=name)["source_trust"] == pytest.approx(0.465 + added)


@pytest.mark.parametrize("mode", ["off", "warn", "enforce"])
def test_low_trust_is_left_out_on_request(
    robin: httpx.Client, admin: httpx.Client, trust_mode: Callable[[str], None], mode: str
) -> None:
    trust_mode(mode)
    bad, subject, name = new("bad"), new(), predicate(robin)["name"]
    put(admin, bad, blocklisted=True)
    blocked = fact(robin, subject, name, "a", source=bad)
    unsure = fact(robin, subject, name, "b", confidence=0.39)
    barely = fact(robin, subject, name, "c", confidence=0.4)
    sure = fact(robin, subject, name, "d")
    whole = ids([sure, barely, unsure, blocked])
    assert ids(listed(robin, entity=subject)) == whole
    assert ids(listed(robin, entity=subject, include_low_trust=True)) == whole
    kept = ids([sure, barely])
    assert ids(listed(robin, entity=subject, include_low_trust=False)) == kept
    assert ids(listed(robin, predicate=name, include_low_trust=False)) == kept
    assert read(robin, blocked["fact_id"])["source_trust"] == 0, "a fact read by its id is there"


def test_another_mode_reaches_facts_already_written(
    robin: httpx.Client,
    trust_mode: Callable[[str], None],
    superuser: Superuser,
    database: TestDatabase,
) -> None:
    name = new("crm")
    shared, private = (
        fact(robin, new(), new("knows"), {"entity": new()}, source=name, scope=scope)["fact_id"]
        for scope in ("project_shared", "agent_private")
    )
    superuser.execute("DELETE FROM jobs WHERE kind = 'trust'")
    trust_mode("enforce")
    (job_id,) = trust_jobs(superuser)
    trust_mode("enforce")
    assert trust_jobs(superuser) == [job_id], "the same mode again changes nothing"
    assert finish_job(database, superuser, job_id)["status"] == "completed"
    enforced = pytest.approx(UNKNOWN + 0.08)
    assert trusts(superuser, shared) == trusts(superuser, private) == (enforced, enforced)
    again = superuser.execute(
        "SELECT available_at > now() + interval '50 seconds' AS later FROM jobs "
        "WHERE kind = 'trust' AND payload ? 'repeated' AND status = 'pending'"
    ).fetchall()
    assert again == [{"later": True}], "once more, when no process remembers the earlier trust"


def test_naming_a_source_is_no_worse_than_naming_none_while_trust_is_off(
    robin: httpx.Client, trust_mode: Callable[[str], None]
) -> None:
    subject, name = new(), predicate(robin)["name"]
    named = fact(robin, subject, name, "a", source=new("crm"), confidence=0.6)
    nameless = fact(robin, subject, name, "b", confidence=0.6)
    assert ids(listed(robin, entity=subject, include_low_trust=False)) == ids([nameless, named])
    trust_mode("warn")
    assert ids(listed(robin, entity=subject, include_low_trust=False)) == ids([nameless])


def test_a_mode_that_does_not_exist_is_refused(admin: httpx.Client) -> None:
    assert admin.patch("/v1/admin/projects/default", json={"trust_mode": "strict"}).status_code == 400


# Remembered for a minute


def test_what_was_judged_is_remembered_until_the_source_is_registered(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    name = new("crm")

    def trust() -> float:
        return fact(robin, new(), new("likes"), "tea", source=name)["source_trust"]

    put(admin, name)
    assert trust() == pytest.approx(UNKNOWN)
    superuser.execute("UPDATE sources SET blocklisted = true WHERE source = %s", (name,))
    assert trust() == pytest.approx(UNKNOWN), "not asked again within the minute"
    put(admin, name, identity="manifest")
    assert trust() == pytest.approx(UNKNOWN + 0.35 * 0.6), "asked again at once"
    put(admin, name, blocklisted=True)
    assert trust() == 0


def test_what_was_judged_is_forgotten_when_its_time_is_over(
    admin: httpx.Client, superuser: Superuser, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sources.CACHED_SECONDS == 60
    monkeypatch.setattr(sources, "CACHED_SECONDS", 1.5)
    name = new("crm")
    put(admin, name)
    who = Principal(tenant_id="acme", project_id="default", agent_id="robin", key_id="", kind="agent")

    async def judged() -> list[float]:
        db = open_database(database.settings())
        await db.open()
        found: list[float] = []
        try:
            for pause in (0.0, 0.0, 1.6):
                await asyncio.sleep(pause)
                draft = {"source": name, "source_trust": None}
                await sources.set_trust(db, who, [draft])
                found.append(draft["source_trust"])
                superuser.execute("UPDATE sources SET blocklisted = true WHERE source = %s", (name,))
        finally:
            await db.close()
        return found

    assert asyncio.run(judged()) == [pytest.approx(UNKNOWN), pytest.approx(UNKNOWN), 0]
