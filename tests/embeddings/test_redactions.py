"""Redaction: no provider sees a secret, and a tenant says what else it must not see."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import psycopg
import pytest

from app.cards.builder import CardEntity, CardFact, build_card
from app.embeddings.embedders import Embedders
from app.embeddings.redactions import BUILT_IN
from app.embeddings.texts import MAX_CHARACTERS, REDACTED_CHARACTERS
from app.recall.query_vectors import ModelVectors
from app.tenancy.schemas import RateLimits
from tests.conftest import Tenancy, TestDatabase
from tests.embeddings.conftest import ROBIN, Bench
from tests.embeddings.test_worker import other_tenant
from tests.facts.shared import error

PATH = "/v1/admin/redactions"
SECRETS = [
    ("password: hunter2hunter2", "hunter2hunter2"),
    ('{"apiKey": "k-123456789"}', "k-123456789"),
    ("API_KEY='two words here'", "words here"),
    ("access_token=abcdef123456", "abcdef123456"),
    ("api key = zyxwvut987", "zyxwvut987"),
    ("token: Bearer abcdefgh12345678", "abcdefgh12345678"),
    ("send it with Authorization: Bearer eyJhbGciOiJI.payload.sig", "eyJhbGciOiJI"),
    (f"my key is pk_{'0a' * 16}_{'Q' * 43} keep it", "Q" * 20),
    ("Passwd = s3cr3t!", "s3cr3t!"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI", "wJalrXUtnFEMI"),
    ("AWS secret access key: wJalrXUtnFEMI", "wJalrXUtnFEMI"),
    ("secret_key: sk-abcd1234efgh", "sk-abcd1234efgh"),
    ("token_value=tok-777888999", "tok-777888999"),
    ("secretValue: sv-55555", "sv-55555"),
    ('apiKeys: ["a-first", "b-second"]', "second"),
    ('{"tokens": {"ours": "t-first", "theirs": "t-second"}}', "second"),
    ("'password' => 'two words'", "words"),
    (r"""{"password": "one \" two"}""", "two"),
]
HARMLESS = [
    "The secret of good tea is time; she lost her password twice and bought a token for the metro.",
    "the secret of good tea",
    "token ring: fast",
    "Secretary: Alice",
    "The tokenizer: fast and small",
    "vault read secret | jq .",
]


@pytest.mark.anyio
@pytest.mark.parametrize(("text", "secret"), SECRETS, ids=[text[:20] for text, _ in SECRETS])
async def test_a_secret_reaches_no_provider(bench: Bench, text: str, secret: str) -> None:
    await bench.notes(f"before {text}, after", author="Alice")
    await bench.fact("the server", "has setting", f"before {text}, after")
    await bench.embed_all()
    assert len(bench.seen) == 2
    for seen in bench.seen:
        assert secret not in seen
        assert "[REDACTED]" in seen
        assert "before" in seen
    assert secret in bench.one("SELECT content FROM memory_notes"), "what is stored is stored as it was said"


@pytest.mark.anyio
async def test_words_about_secrets_are_no_secrets(bench: Bench) -> None:
    await bench.notes(*HARMLESS)
    await bench.embed_all()
    assert sorted(bench.seen) == sorted(HARMLESS)
    assert bench.rows("SELECT * FROM redaction_counts") == []


@pytest.mark.anyio
async def test_8a_d16_what_a_fact_says_under_the_name_of_a_secret_reaches_no_provider(bench: Bench) -> None:
    for name in ("API_key", "has secret", "Password", "passwd of", "access token"):
        await bench.fact("billing service", name, f"sk-live for {name}")
    await bench.fact("billing service", "runs on", "the old server")
    await bench.fact("billing service", "secretary", "Ann")
    await bench.embed_all()
    assert sorted(bench.seen) == [
        "billing service API_key [REDACTED]",
        "billing service Password [REDACTED]",
        "billing service access token [REDACTED]",
        "billing service has secret [REDACTED]",
        "billing service passwd of [REDACTED]",
        "billing service runs on the old server",
        "billing service secretary Ann",
    ]
    assert bench.one("SELECT redactions FROM redaction_counts") == 5


@pytest.mark.anyio
async def test_8a_d16_a_tenants_patterns_hold_for_names_too(bench: Bench) -> None:
    other = await other_tenant(bench, "beta")
    bench.superuser.execute(
        "INSERT INTO embedding_redactions (tenant_id, pattern_id, pattern, created_by, created_at) "
        "VALUES ('acme', gen_random_uuid(), 'salary', 'robin', now())"
    )
    for who in (ROBIN, other):
        await bench.fact("Alice", "yearly Salary", "12 pounds", who=who)
    await bench.embed_all()
    assert sorted(bench.seen) == ["Alice yearly Salary 12 pounds", "Alice yearly [REDACTED] [REDACTED]"]
    assert bench.rows("SELECT tenant_id, redactions FROM redaction_counts") == [{"tenant_id": "acme", "redactions": 2}]


def card_fact(number: int, relation: str, value: str, *against: str) -> CardFact:
    return CardFact(
        fact_id=str(number),
        scope="project_shared",
        owner_key="",
        relation=relation,
        value=value,
        confidence=0.9,
        source_trust=1.0,
        source=None,
        hlc=str(number),
        valid_from="2026-01-01",
        since="2026-01-01",
        against=list(against),
    )


@pytest.mark.anyio
async def test_8a_d16_nor_does_a_card_tell_it(bench: Bench) -> None:
    facts = [
        card_fact(0, "api_key", "sk-first | one"),
        card_fact(1, "api_key", "sk-second", "0"),
        card_fact(2, "runs on", "the old server"),
    ]
    card = build_card(CardEntity(canonical="billing", kind=None, aliases=[]), facts, use_trust=False)
    assert card is not None
    assert card.content.count("sk-") == 4, "in the table and among the contradictions"
    await bench.fact("billing", "runs on", "the old server")
    bench.superuser.execute(
        "WITH card AS (INSERT INTO memory_cards (tenant_id, card_id, project_id, entity_id, scope, agent_id, "
        "owner_key, content, facts, omitted, built_at) SELECT 'acme', gen_random_uuid(), 'default', subject_entity_id, "
        "'project_shared', 'robin', '', %s, 3, 0, now() FROM graph_facts RETURNING card_id) "
        "INSERT INTO embedding_queue (tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at) "
        "SELECT 'acme', 'default', 'card', card_id, 1, now(), now() FROM card",
        (card.content,),
    )
    await bench.embed_all()
    (seen,) = [text for text in bench.seen if text.startswith("# billing")]
    assert "sk-" not in seen
    assert " one" not in seen
    assert "| runs on | the old server | 0.9 |" in seen


@pytest.mark.anyio
async def test_a_tenants_own_patterns_hold_for_its_own_texts_and_authors(bench: Bench) -> None:
    other = await other_tenant(bench, "beta")
    bench.superuser.execute(
        "INSERT INTO embedding_redactions (tenant_id, pattern_id, pattern, created_by, created_at) "
        "VALUES ('acme', gen_random_uuid(), %s, 'robin', now())",
        (r"[\w.]+@[\w.]+",),
    )
    said: dict[str, Any] = {"author": "alice@example.com", "occurred_at": "2023-05-08T10:00:00Z"}
    await bench.notes("Write to Bob@Example.com.", **said)
    await bench.notes("Write to Bob@Example.com.", who=other, **said)
    await bench.embed_all()
    assert sorted(bench.seen) == [
        "[REDACTED] (8 May 2023): Write to [REDACTED]",
        "alice@example.com (8 May 2023): Write to Bob@Example.com.",
    ]


@pytest.mark.anyio
async def test_questions_are_redacted_too_before_they_leave(bench: Bench) -> None:
    bench.superuser.execute(
        "INSERT INTO embedding_redactions (tenant_id, pattern_id, pattern, created_by, created_at) "
        "VALUES ('acme', gen_random_uuid(), %s, 'robin', now())",
        (r"\d{3}-\d{2}-\d{4}",),
    )
    vectors = ModelVectors(bench.db, Embedders(bench.database.settings(), build=bench.build))
    asked = "who has 123-45-6789 and password: hunter2hunter2?"
    for tenant in ("acme", "beta"):
        assert await vectors.embed(tenant, asked) is not None
        assert await vectors.embed(tenant, asked) is not None, "remembered"
    assert bench.seen == ["who has [REDACTED] and [REDACTED]", "who has 123-45-6789 and [REDACTED]"]


def own_patterns(bench: Bench, *patterns: str) -> None:
    """Patterns of acme, in this order, whatever would be said of them now."""
    for pattern in patterns:
        bench.superuser.execute(
            "INSERT INTO embedding_redactions (tenant_id, pattern_id, pattern, created_by, created_at) "
            "VALUES ('acme', gen_random_uuid(), %s, 'robin', clock_timestamp())",
            (pattern,),
        )


# On a text such as this, one would be looked at for hours.
SLOW = r"^(1+)(1+)\1\2\1\2x"
SLOW_ON = "1" * 9001 + "x"


@pytest.mark.anyio
async def test_a_pattern_that_is_slow_on_long_texts_sees_what_a_model_could_read(bench: Bench) -> None:
    own_patterns(bench, "1(.*z)?")
    await bench.notes(*(f"note {number}: {'1' * 60000}" for number in range(2, 7)), "a short one")
    await bench.embed_all()
    assert len(bench.vectors) == 6
    assert max(map(len, bench.seen)) < 100


@pytest.mark.anyio
async def test_a_text_that_cannot_be_redacted_in_time_is_put_off_alone_and_not_sent(bench: Bench) -> None:
    own_patterns(bench, SLOW)
    slow, *_ = await bench.notes(SLOW_ON, *(f"fine {number}" for number in range(20)))
    async with bench.working():
        await bench.until(lambda: len(bench.vectors) == 20, seconds=30)
        await bench.until(lambda: bench.queue[0]["attempts"] == 1)
    (line,) = bench.queue
    assert str(line["owner_id"]) == slow
    assert line["last_error"].startswith("redaction_timeout: Redacting this text takes longer than 2 s")
    assert "/v1/admin/redactions" in line["last_error"]
    assert 20 < (line["available_at"] - datetime.now(UTC)).total_seconds() < 37
    assert not any("111" in text for text in bench.seen)
    assert {job["last_error"] for job in bench.jobs} <= {None}
    bench.superuser.execute("DELETE FROM embedding_redactions")
    bench.superuser.execute("UPDATE embedding_queue SET available_at = now()")
    await bench.embed_all()
    assert len(bench.vectors) == 21


@pytest.mark.anyio
async def test_a_question_that_cannot_be_redacted_in_time_is_not_sent(bench: Bench) -> None:
    own_patterns(bench, SLOW)
    vectors = ModelVectors(bench.db, Embedders(bench.database.settings(), build=bench.build))
    started = time.monotonic()
    assert await vectors.embed("acme", SLOW_ON) is None
    assert time.monotonic() - started < 5
    assert bench.seen == []
    assert await vectors.embed("acme", "a short one") is not None


@pytest.mark.anyio
async def test_patterns_do_not_multiply(bench: Bench) -> None:
    own_patterns(bench, ".", "[^q]", "[^x]", "[^y]", "[^j]")
    vectors = ModelVectors(bench.db, Embedders(bench.database.settings(), build=bench.build))
    assert await vectors.embed("acme", "a question of thirty-five characters") is not None
    await bench.notes("a note")
    await bench.embed_all()
    assert bench.seen == ["[REDACTED]", "[REDACTED]"]


@pytest.mark.anyio
async def test_what_grows_by_redaction_is_cut_to_what_a_model_reads(bench: Bench) -> None:
    own_patterns(bench, "a")
    vectors = ModelVectors(bench.db, Embedders(bench.database.settings(), build=bench.build))
    assert await vectors.embed("acme", "ab" * 5000) is not None
    await bench.notes("ab" * 5000)
    await bench.embed_all()
    assert len(bench.seen) == 2
    for seen in bench.seen:
        assert len(seen) == MAX_CHARACTERS
        assert seen.startswith("[REDACTED]b[REDACTED]b")


@pytest.mark.anyio
async def test_no_pattern_matches_inside_what_another_has_hidden(bench: Bench) -> None:
    own_patterns(bench, "RED", "plum", "ACT", "plum.*pear", "fig.*kiwi")
    await bench.notes("apple plum cherry", "fig plum kiwi nut", "said [REDACTED] before")
    await bench.embed_all()
    assert sorted(bench.seen) == ["[REDACTED] nut", "apple [REDACTED] cherry", "said [REDACTED] before"]
    assert bench.one("SELECT redactions FROM redaction_counts") == 3, "two plums, and what is around one"


@pytest.mark.anyio
async def test_a_pattern_that_matches_between_characters_changes_nothing(bench: Bench) -> None:
    own_patterns(bench, r"\m", "(?=tea)", "x*")
    await bench.notes("tea, coffee and xx")
    await bench.embed_all()
    assert bench.seen == ["tea, coffee and [REDACTED]"]


@pytest.mark.anyio
@pytest.mark.parametrize("before", [REDACTED_CHARACTERS - length for length in (40, 1500, 3900)])
async def test_no_half_of_a_secret_is_sent_where_a_text_is_cut(bench: Bench, before: int) -> None:
    own_patterns(bench, "junk[a-z]+", "KEY-[0-9]+-END")
    # All that stands before is hidden, so that the place of the cut comes within what a model reads.
    await bench.notes(f"junk{'j' * (before - 5)} KEY-{'7' * 3990}-END and more")
    await bench.embed_all()
    (seen,) = bench.seen
    assert "7" not in seen
    assert seen.startswith("[REDACTED]")


@pytest.mark.anyio
async def test_built_in_patterns_see_all_of_a_text(bench: Bench) -> None:
    own_patterns(bench, "nothing like it")
    await bench.notes(f'password: "{"two words " * 4000}" and more')
    await bench.embed_all()
    assert bench.seen == ["[REDACTED] and more"]


@pytest.fixture
def bound_admin(tenancy: Tenancy, keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    limits = RateLimits(read=0, write=0, admin=0)
    return as_key(tenancy.key("acme", kind="admin", project_id="default", rate_limits=limits))


def test_patterns_are_added_listed_and_removed(admin: httpx.Client, database: TestDatabase) -> None:
    made = admin.post(PATH, json={"pattern": r"\d{3}-\d{2}-\d{4}"})
    assert made.status_code == 201, made.text
    assert made.json()["created"] is True
    again = admin.post(PATH, json={"pattern": r"\d{3}-\d{2}-\d{4}"})
    assert again.status_code == 200
    assert again.json() == {**made.json(), "created": False}
    listed = admin.get(PATH).json()
    assert listed["redactions"] == [made.json()["redaction"]]
    assert listed["built_in"] == list(BUILT_IN)
    assert listed["next_cursor"] is None
    path = f"{PATH}/{made.json()['redaction']['redaction_id']}"
    assert admin.delete(path).status_code == 204
    assert error(admin.delete(path)) == (404, "redaction_not_found")
    assert admin.get(PATH).json()["redactions"] == []
    with psycopg.connect(database.superuser) as connection:
        found = connection.execute(
            "SELECT details ->> 'action' FROM audit_log WHERE details ->> 'action' LIKE 'redaction%' "
            "ORDER BY created_at"
        ).fetchall()
    assert found == [("redaction_create",), ("redaction_delete",)]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(open", "parentheses"),
        ("[a-", "bracket"),
        ("x*", "empty"),
        (r"\m", "between two characters"),
        (r"\M", "between two characters"),
        ("(?=secret)", "between two characters"),
        ("cat|(?!dog)", "between two characters"),
        ("1(.*z)?", "too long"),
        ("é(.*z)?", "too long"),
        ("", "pattern"),
        ("a" * 201, "pattern"),
        (r"(a+)\1", "back-references"),
        (r"*", "pattern"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_and_named(
    admin: httpx.Client,
    pattern: str,
    words: str,
) -> None:
    answer = admin.post(PATH, json={"pattern": pattern})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"].startswith("pattern: ")
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "pattern",
    [
        r"[\w.+-]+@[\w-]+(\.[\w-]+)+",
        r"(\d[ -]?){13,16}",
        r"\mIBAN\s*[A-Z]{2}\d{2}[A-Z0-9 ]{10,30}",
        ".",
        r"(?n)^from:.*$",
    ],
)
def test_usual_patterns_are_quick_enough(admin: httpx.Client, pattern: str) -> None:
    answer = admin.post(PATH, json={"pattern": pattern})
    assert answer.status_code == 201, answer.text
    assert admin.delete(f"{PATH}/{answer.json()['redaction']['redaction_id']}").status_code == 204


def test_a_tenant_has_no_more_than_fifty(admin: httpx.Client, superuser: psycopg.Connection[Any]) -> None:
    for number in range(50):
        assert admin.post(PATH, json={"pattern": f"secret-{number}"}).status_code == 201
    assert error(admin.post(PATH, json={"pattern": "one more"})) == (409, "redactions_full")
    assert admin.post(PATH, json={"pattern": "secret-1"}).status_code == 200
    page = admin.get(PATH, params={"limit": 20}).json()
    assert len(page["redactions"]) == 20
    rest = admin.get(PATH, params={"limit": 40, "cursor": page["next_cursor"]}).json()
    assert len(rest["redactions"]) == 30
    assert rest["next_cursor"] is None
    superuser.execute("DELETE FROM embedding_redactions")


def test_only_administrators_of_the_tenant_decide(
    admin: httpx.Client,
    robin: httpx.Client,
    rival: httpx.Client,
    bound_admin: httpx.Client,
) -> None:
    made = admin.post(PATH, json={"pattern": "ours"}).json()["redaction"]
    for client in (robin, rival):
        assert client.post(PATH, json={"pattern": "theirs"}).status_code == 403
        assert client.get(PATH).status_code == 403
        assert client.delete(f"{PATH}/{made['redaction_id']}").status_code == 403
    assert bound_admin.get(PATH).status_code == 200
    assert error(bound_admin.post(PATH, json={"pattern": "theirs"})) == (403, "forbidden")
    assert error(bound_admin.delete(f"{PATH}/{made['redaction_id']}")) == (403, "forbidden")
    assert msgspec.json.decode(admin.get(PATH).content)["redactions"] == [made]
