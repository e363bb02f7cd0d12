"""Forgetting reaches documents: what names somebody is hidden with them, comes back with them, and goes with them."""

import time
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import TestDatabase
from tests.documents.conftest import ingested, notes_of, post, read, words
from tests.documents.web import Web
from tests.erasure.shared import revoke, tombstone, until_erased
from tests.erasure.test_erasure import dump
from tests.facts.shared import error, new, note

Superuser = psycopg.Connection[dict[str, Any]]


@pytest.fixture
def person(robin: httpx.Client) -> str:
    name = new("Zuleika")
    assert robin.post("/v1/entities", json={"canonical": name}).status_code == 201
    return name


def hidden(client: httpx.Client, document: dict[str, Any]) -> bool:
    """Whether there is no trace of a document."""
    path = f"/v1/documents/{document['document_id']}"
    answers = [client.get(path), client.get(f"{path}/notes")]
    listed = client.get("/v1/documents", params={"limit": 200}).json()["documents"]
    found = {answer.status_code for answer in answers}
    assert len(found) == 1
    assert (document["document_id"] in [item["document_id"] for item in listed]) == (found == {200})
    return found == {404}


@pytest.mark.usefixtures("worker")
def test_tombstone_hides_a_document_with_a_chunk_that_names_the_entity_and_revoking_restores_it(
    robin: httpx.Client, admin: httpx.Client, person: str
) -> None:
    text = f"{words(300)} {person} {words(300)}"
    told = ingested(robin, content=text)
    titled = ingested(robin, content=words(5), title=f"The life of {person} " + "x" * 40)
    linked = ingested(robin, content=words(5), source_url=f"http://example.com/{person.replace(' ', '-')}")
    other = ingested(robin, content=words(5))
    before = notes_of(robin, told)
    made = tombstone(admin, person)
    assert [hidden(robin, document) for document in (told, titled, linked, other)] == [True, True, True, False]
    # Its other chunks say nothing of anybody.
    shown = [robin.get(f"/v1/notes/{item['note_id']}").status_code for item in before]
    assert shown.count(404) in (1, 2)
    assert shown.count(200) == len(before) - shown.count(404)
    revoke(admin, made)
    assert [hidden(robin, document) for document in (told, titled, linked)] == [False, False, False]
    assert notes_of(robin, told) == before


def test_tombstone_stops_what_is_still_to_be_read(
    robin: httpx.Client, admin: httpx.Client, person: str, superuser: Superuser
) -> None:
    waiting = post(robin, content=f"{words(10)} {person}", scope="project_shared")
    tombstone(admin, person)
    assert hidden(robin, waiting)
    row = superuser.execute("SELECT suppression FROM documents WHERE document_id = %s", (waiting["document_id"],))
    assert row.fetchone() == {"suppression": 1}


@pytest.mark.usefixtures("worker")
def test_erasure_leaves_nothing_of_an_entity_in_documents(
    robin: httpx.Client, admin: httpx.Client, person: str, database: TestDatabase, superuser: Superuser, web: Web
) -> None:
    secret = uuid4().hex
    whole = ingested(robin, content=f"{words(300)} {person} said {secret}. {words(300)}", author=person, tags=[person])
    titled = ingested(robin, content=words(600), title=f"{person} at home")
    page = ingested(robin, url=f"{web.url}/page?{person.replace(' ', '+')}", title="A page")
    body = {"source_type": "pdf", "content_base64": "JVBERi0gZ2FyYmFnZQ==", "title": f"{person}, unreadable"}
    answer = robin.post("/v1/documents", json=body, headers={"Idempotency-Key": uuid4().hex})
    failed = answer.json()["document"]
    other = ingested(robin, content=words(600), title="Untouched")
    kept = [item["note_id"] for item in notes_of(robin, titled)]
    named = [item["note_id"] for item in notes_of(robin, whole)]
    deadline = time.monotonic() + 60
    while read(robin, failed)["status"] != "failed" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert person.lower() in dump(database)
    made = tombstone(admin, person, erase=True)
    receipt = until_erased(admin, made)["receipt"]
    after = dump(database)
    assert person.lower() not in after
    assert person.lower().replace(" ", "+") not in after
    assert secret not in after
    assert receipt["names_left"] == []
    assert receipt["destroyed"]["documents"] == 4
    # Tagged with the title, all chunks of that one named the person; of the other, those that did.
    assert all(robin.get(f"/v1/notes/{note_id}").status_code == 404 for note_id in kept)
    assert {robin.get(f"/v1/notes/{note_id}").status_code for note_id in named} == {404}
    for document in (whole, titled, page, failed):
        blank = read(robin, document)
        assert (blank["title"], blank["source_url"], blank["author"], blank["tags"]) == (None, None, None, [])
        assert blank["status"] in ("done", "failed")
        assert notes_of(robin, document) == [] or document is page
        path = f"/v1/documents/{document['document_id']}"
        assert robin.delete(path, params={"reason": "empty"}).status_code == 204
    assert read(robin, other)["title"] == "Untouched"
    assert len(notes_of(robin, other)) == other["chunks_total"]


@pytest.mark.usefixtures("worker")
def test_erasure_takes_what_was_derived_reviewed_and_proposed(
    robin: httpx.Client, admin: httpx.Client, person: str, superuser: Superuser
) -> None:
    told, stays, target = note(robin, content=f"{person} moved to Rome"), note(robin), note(robin)
    first, second, private = (note(robin) for _ in range(3))
    superuser.execute("UPDATE memory_notes SET derived_from = %s WHERE note_id = %s", (told, first))
    superuser.execute("UPDATE memory_notes SET derived_from = %s WHERE note_id = %s", (first, second))
    superuser.execute("UPDATE memory_notes SET derived_from = %s WHERE note_id = %s", (stays, private))
    review = """
        INSERT INTO memory_reviews (tenant_id, review_id, project_id, agent_id, scope, note_id, target_note_id,
            target_version, action, content, content_type, confidence, reason, extraction_model, created_at)
        VALUES ('acme', gen_random_uuid(), 'default', 'robin', 'project_shared', %s, %s, 1, 'update', %s, 'fact', 0.9,
            'because', 'x', now())"""
    superuser.execute(review, (told, target, "moves"))
    superuser.execute(review, (stays, second, "follows"))
    superuser.execute(review, (stays, target, f"{person} again"))
    superuser.execute(review, (stays, target, "nothing of it"))
    proposal = "UPDATE memory_history SET proposal = %s WHERE note_id = %s"
    superuser.execute(proposal, (f'{{"target": "{told}"}}', stays))
    superuser.execute(proposal, (f'{{"content": "{person} moved"}}', target))
    superuser.execute(proposal, ('{"content": "somebody moved"}', private))
    result = (
        "INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, status, created_by, available_at, created_at"
    )
    superuser.execute(
        f"{result}, result) VALUES ('acme', gen_random_uuid(), 'default', 'extract', '{{}}', 'completed', 'x', now(), "
        "now(), %s)",
        (f'{{"note_id": "{told}"}}',),
    )
    made = tombstone(admin, person)
    # Hidden with it: what it was derived into, and what is proposed about it.
    assert [robin.get(f"/v1/notes/{item}").status_code for item in (told, first, second, stays)] == [404, 404, 404, 200]
    levels = "SELECT content, suppression FROM memory_reviews ORDER BY content"
    shown = {row["content"]: row["suppression"] for row in superuser.execute(levels)}
    assert (shown["moves"], shown["follows"], shown["nothing of it"]) == (1, 1, 0)
    revoke(admin, made)
    assert {row["suppression"] for row in superuser.execute(levels)} == {0}

    until_erased(admin, tombstone(admin, person, erase=True))
    assert [row["content"] for row in superuser.execute(levels)] == ["nothing of it"]
    assert robin.get(f"/v1/notes/{second}").status_code == 404
    assert robin.get(f"/v1/notes/{private}").status_code == 200
    left = superuser.execute("SELECT proposal FROM memory_history WHERE proposal IS NOT NULL").fetchall()
    assert left == [{"proposal": {"content": "somebody moved"}}]
    assert superuser.execute("SELECT FROM jobs WHERE result::text LIKE %s", (f"%{told}%",)).fetchall() == []


@pytest.mark.usefixtures("worker")
def test_erasure_of_one_scope_leaves_what_was_derived_in_another(
    robin: httpx.Client, admin: httpx.Client, person: str, superuser: Superuser
) -> None:
    told, derived = note(robin, content=f"{person} sings"), note(robin, scope="agent_private")
    superuser.execute("UPDATE memory_notes SET derived_from = %s WHERE note_id = %s", (told, derived))
    until_erased(admin, tombstone(admin, person, scope="project_shared", erase=True))
    assert error(robin.get(f"/v1/notes/{told}"))[0] == 404
    assert robin.get(f"/v1/notes/{derived}").status_code == 200
    row = superuser.execute("SELECT derived_from FROM memory_notes WHERE note_id = %s", (derived,)).fetchone()
    assert row == {"derived_from": None}
