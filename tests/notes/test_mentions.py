"""Mentions: the entities that a note mentions, as its text spells them, how sure that is, and who is told."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.facts.shared import Superuser, body, entity, fact, new, note, now, tombstone


def mentions(client: httpx.Client, note_id: str, **params: Any) -> dict[str, tuple[str | None, float]]:
    """Text and confidence of each entity that a note mentions."""
    answer = client.get(f"/v1/notes/{note_id}", params=params)
    assert answer.status_code == 200, answer.text
    return {item["entity_id"]: (item["text"], item["confidence"]) for item in answer.json()["mentions"]}


def cite(client: httpx.Client, subject: str, note_id: str, **fields: Any) -> str:
    """A fact with the note as its evidence; returns the id of its subject."""
    return fact(client, subject, new("says"), "something", evidence=[note_id], **fields)["subject"]["entity_id"]


@pytest.mark.parametrize(
    ("content", "spelled", "confidence"),
    [
        ("We met Yolanda Brïx {0} twice", "Yolanda Brïx {0}", 1.0),
        ("Ask Brx-{0}, she knows", "Brx-{0}", 1.0),
        ("we met YOLANDA brix {0}.", "YOLANDA brix {0}", 0.9),
        ("Straße, Æther: (ＹＯＬＡＮＤＡ_Brix-{0})", "ＹＯＬＡＮＤＡ_Brix-{0}", 0.9),
        ("Zero\u200bwidth \u200bYol\u200banda Brix {0}\u200b!", "Yol\u200banda Brix {0}", 0.9),
        ("MyYolanda Brïx {0} and Yolanda Brïx {0}", "Yolanda Brïx {0}", 1.0),
        ("She likes tea {0}x", None, 0.7),
    ],
)
def test_a_model_mentions_what_the_text_has(
    robin: httpx.Client,
    content: str,
    spelled: str | None,
    confidence: float,
) -> None:
    mark = uuid4().hex[:10]
    named = entity(robin, f"Yolanda Brïx {mark}", aliases=[f"Brx-{mark}"])
    told = note(robin, content=content.format(mark))
    cite(robin, named["canonical"], told, source="pipeline")
    assert mentions(robin, told) == {named["entity_id"]: (spelled and spelled.format(mark), confidence)}


def test_what_a_caller_says_is_sure(robin: httpx.Client) -> None:
    names = [new("Alice"), new("bob")]
    told = note(robin, content=f"{names[0].upper()} was here")
    made = robin.post("/v1/facts", json=body(names[0], new("knows"), {"entity": names[1]}, evidence=[told])).json()
    spelled = {made["fact"]["subject"]["entity_id"]: (names[0].upper(), 1.0)}
    assert mentions(robin, told) == spelled | {made["fact"]["object"]["entity"]["entity_id"]: (None, 1.0)}


def test_the_better_confidence_stays(robin: httpx.Client) -> None:
    name = new("Alice")
    told = note(robin)
    named = cite(robin, name, told, source="pipeline")
    assert mentions(robin, told) == {named: (None, 0.7)}
    cite(robin, name, told)
    assert mentions(robin, told) == {named: (None, 1.0)}
    cite(robin, name, told, source="pipeline")
    assert mentions(robin, told) == {named: (None, 1.0)}


def test_only_entities_of_facts_that_the_caller_sees(robin: httpx.Client, wren: httpx.Client) -> None:
    secret, shared = new("secret"), new("shared")
    told = note(robin, content=f"{secret} and {shared}")
    hidden = cite(robin, secret, told, scope="agent_private")
    shown = cite(robin, shared, told)
    assert set(mentions(robin, told)) == {hidden, shown}
    assert set(mentions(wren, told)) == {shown}


def test_mentions_of_a_past_time(robin: httpx.Client) -> None:
    told = note(robin)
    before = now()
    named = cite(robin, new(), told)
    assert mentions(robin, told, as_of=before) == {}
    assert set(mentions(robin, told, as_of=now())) == {named}


def test_a_merge_keeps_text_and_confidence(robin: httpx.Client) -> None:
    name, into = new("Ali"), entity(robin)["entity_id"]
    told = note(robin, content=f"{name.upper()} called")
    named = cite(robin, name, told, source="pipeline")
    assert robin.post(f"/v1/entities/{named}/merge", json={"into": into}).status_code == 200
    assert mentions(robin, told) == {into: (name.upper(), 0.9)}


def test_a_tombstone_hides_mentions_and_revoking_shows_them(robin: httpx.Client, admin: httpx.Client) -> None:
    gone, kept = new("Gone"), new("Kept")
    told = note(robin)
    hidden, shown = cite(robin, gone, told), cite(robin, kept, told)
    made = tombstone(admin, gone, scope="agent_private")
    assert set(mentions(robin, told)) == {hidden, shown}, "of another scope"
    assert admin.post(f"/v1/tombstones/{made}/revoke", json={"reason": "again"}).status_code == 200
    made = tombstone(admin, gone)
    assert robin.get(f"/v1/notes/{told}").status_code == 404
    assert admin.post(f"/v1/tombstones/{made}/revoke", json={"reason": "again"}).status_code == 200
    assert set(mentions(robin, told)) == {hidden, shown}


def test_what_a_tombstone_finds_has_no_text(
    robin: httpx.Client,
    admin: httpx.Client,
    superuser: Superuser,
) -> None:
    name = new("Somebody")
    told = note(robin, content=f"{name} was here")
    tombstone(admin, name)
    rows = superuser.execute("SELECT mention, confidence FROM note_entity_mentions WHERE note_id = %s", (told,))
    assert rows.fetchall() == [{"mention": None, "confidence": 0.9}]
