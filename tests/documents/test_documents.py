"""Documents: taken in, read into notes by a job that can be watched, found by recall, forgotten as a whole."""

import base64
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.documents.conftest import ingested, notes_of, post, read, until_ended, words
from tests.documents.web import Web
from tests.facts.shared import error, new

SETTINGS = "/v1/projects/default/settings"

pytestmark = pytest.mark.usefixtures("worker")


def test_document_ingest_makes_overlapping_chunks_in_order(robin: httpx.Client) -> None:
    text, title = words(600), new("A title")
    done = ingested(robin, content=text, title=title, tags=["shelf"], author="Ada", occurred_at="2020-01-01T00:00:00Z")
    notes = notes_of(robin, done)
    assert done["chunks_total"] == done["chunks_done"] == done["notes_created"] == len(notes) > 3
    assert done["notes_deduplicated"] == 0
    assert done["completed_at"] is not None
    assert [note["chunk_index"] for note in notes] == [note["position"] for note in notes] == list(range(len(notes)))
    first, second = notes[0]["content"], notes[1]["content"]
    assert text.startswith(first + " "), "it ends with a whole word"
    assert text[text.index(second) - 1] == " "
    assert 1900 < len(first) <= 2000
    assert 0 < len(first) - text.index(second) <= 200
    assert {note["type"] for note in notes} == {"document_chunk"}
    assert {note["thread_id"] for note in notes} == {f"document:{done['document_id']}"}
    assert all(note["tags"] == [title, "shelf"] for note in notes)
    assert {(note["author"], note["occurred_at"]) for note in notes} == {("Ada", "2020-01-01T00:00:00Z")}
    assert "raw_content" not in done
    assert "content" not in done
    job = robin.get(f"/v1/jobs/{done['job_id']}").json()
    assert (job["kind"], job["status"], job["max_attempts"]) == ("document_ingest", "completed", 3)
    assert job["result"]["notes_created"] == len(notes)
    found = robin.post("/v1/recall", json={"query": text.split()[300], "max_results": 5}).json()["results"]
    assert any(text.split()[300] in result["content"] for result in found)


def test_document_shorter_than_one_chunk_is_not_split(robin: httpx.Client) -> None:
    done = ingested(robin, text="  Only  a few\n\nwords here. " + uuid4().hex)
    (note,) = notes_of(robin, done)
    assert note["content"].startswith("Only a few\n\nwords here. ")


def test_document_keeps_its_headings_and_is_named_where_it_is_rendered(robin: httpx.Client) -> None:
    mark = uuid4().hex
    text = f"# Kitchen {mark}\n\n## Tea\n\nTea is kept in the blue tin {mark}.\n\n```sh\n# no heading\n```"
    done = ingested(robin, source_type="markdown", content=text)
    (note,) = notes_of(robin, done)
    assert note["content"].startswith(f"# Kitchen {mark}\n\n## Tea\n\nTea is kept in the blue tin {mark}.")
    assert "`# no heading`" in note["content"]
    rendered = robin.post("/v1/recall", json={"query": f"tea {mark}", "rendered": True}).json()["rendered"]
    lines = rendered.split("\n")
    place = next(place for place, line in enumerate(lines) if line.startswith("- Document (") and mark in line)
    assert lines[place].endswith(f', "Kitchen {mark}"):')
    assert lines[place + 1 : place + 4] == [
        f"> # Kitchen {mark}",
        "> ## Tea",
        f"> Tea is kept in the blue tin {mark}.",
    ]


def test_document_settings_of_the_project_decide_on_chunks(robin: httpx.Client, admin: httpx.Client) -> None:
    settings = {"document_chunk_size": 300, "document_chunk_overlap": 50, "worker_max_retries": 2}
    answer = admin.put(SETTINGS, json=settings)
    assert answer.status_code == 200, answer.text
    try:
        text = words(100)
        done = ingested(robin, content=text)
        notes = notes_of(robin, done)
        assert 250 < len(notes[1]["content"]) <= 300
        assert 0 < len(notes[0]["content"]) - text.index(notes[1]["content"]) <= 50
        assert robin.get(f"/v1/jobs/{done['job_id']}").json()["max_attempts"] == 2
    finally:
        admin.put(SETTINGS, json=dict.fromkeys(settings))


def test_document_repeated_chunks_share_a_note(robin: httpx.Client) -> None:
    line = uuid4().hex.ljust(1800, "x")
    done = ingested(robin, content=line * 4)
    notes = notes_of(robin, done)
    assert (done["notes_created"], done["notes_deduplicated"]) == (2, 2)
    assert done["chunks_done"] == done["chunks_total"] == len(notes) == 4
    assert len({note["note_id"] for note in notes}) == 2


def test_document_raw_content_is_let_go_when_done(
    robin: httpx.Client, superuser: psycopg.Connection[dict[str, Any]]
) -> None:
    done = ingested(robin, content=words(5))
    row = superuser.execute("SELECT raw_content FROM documents WHERE document_id = %s", (done["document_id"],))
    assert row.fetchone() == {"raw_content": None}


def test_document_the_same_content_again_is_deduplicated(robin: httpx.Client, wren: httpx.Client) -> None:
    text = words(20)
    first = robin.post("/v1/documents", json={"content": text, "source_type": "text"})
    again = robin.post("/v1/documents", json={"content": text})
    assert (first.status_code, again.status_code) == (201, 200)
    assert (first.json()["deduplicated"], again.json()["deduplicated"]) == (False, True)
    assert first.json()["job_id"] == again.json()["job_id"] is not None
    assert first.json()["document"]["document_id"] == again.json()["document"]["document_id"]
    # Of another kind or scope, or deleted, it is another one.
    assert robin.post("/v1/documents", json={"content": text, "source_type": "markdown"}).status_code == 201
    assert robin.post("/v1/documents", json={"content": text, "scope": "agent_private"}).status_code == 201
    assert wren.post("/v1/documents", json={"content": text, "scope": "agent_private"}).status_code == 201
    path = f"/v1/documents/{first.json()['document']['document_id']}"
    assert robin.delete(path, params={"reason": "old"}).status_code == 204
    assert robin.post("/v1/documents", json={"content": text}).status_code == 201


def test_document_idempotency_key(robin: httpx.Client) -> None:
    body, headers = {"content": words(3)}, {"Idempotency-Key": uuid4().hex}
    first = robin.post("/v1/documents", json=body, headers=headers)
    second = robin.post("/v1/documents", json=body, headers=headers)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (400, "invalid_request")),
        ({"content": "  "}, (400, "invalid_request")),
        ({"content": "a", "text": "b"}, (400, "invalid_request")),
        ({"content": "a", "content_base64": "YQ=="}, (400, "invalid_request")),
        ({"source_type": "pdf", "content": "a"}, (400, "invalid_request")),
        ({"source_type": "pdf", "content_base64": "???"}, (400, "invalid_request")),
        ({"source_type": "url", "content": "a"}, (400, "invalid_request")),
        ({"source_type": "text", "url": "http://example.com"}, (400, "invalid_request")),
        ({"content": "a", "title": "x" * 501}, (400, "invalid_request")),
        ({"content": "a", "tags": ["x"] * 51}, (400, "invalid_request")),
        ({"content": "a", "unknown": 1}, (400, "invalid_request")),
        ({"content": "a", "garden_id": str(uuid4())}, (404, "garden_not_found")),
        ({"url": "ftp://example.com/x"}, (400, "document_url_invalid")),
        ({"url": "no address"}, (400, "document_url_invalid")),
        ({"url": "http://me:secret@example.com/"}, (400, "document_url_invalid")),
        ({"url": "http://127.0.0.1/"}, (403, "document_fetch_refused")),
        ({"url": "http://2130706433/"}, (403, "document_fetch_refused")),
        ({"url": "http://[::ffff:10.0.0.1]/"}, (403, "document_fetch_refused")),
        ({"url": "http://169.254.169.254/latest/meta-data"}, (403, "document_fetch_refused")),
    ],
)
def test_document_what_cannot_be_taken_is_refused_at_once(
    robin: httpx.Client, body: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert error(robin.post("/v1/documents", json=body)) == expected


def test_document_over_the_projects_limit_is_413_and_names_it(robin: httpx.Client, admin: httpx.Client) -> None:
    assert admin.put(SETTINGS, json={"document_max_content_bytes": 2000}).status_code == 200
    try:
        for body in (
            {"content": "ä" * 1001},
            {"source_type": "pdf", "content_base64": base64.b64encode(b"x" * 2001).decode()},
        ):
            answer = robin.post("/v1/documents", json=body)
            assert error(answer) == (413, "document_too_large")
            assert "2000" in answer.json()["error"]["message"]
    finally:
        admin.put(SETTINGS, json={"document_max_content_bytes": None})
    answer = robin.post("/v1/documents", content=b'{"content": "' + b"x" * 9_000_000 + b'"}')
    assert error(answer) == (413, "body_too_large")
    assert "MAX_BODY_BYTES" in answer.json()["error"]["message"]


def test_document_delete_takes_its_notes_with_it(robin: httpx.Client) -> None:
    done = ingested(robin, content=words(600))
    notes = notes_of(robin, done)
    path = f"/v1/documents/{done['document_id']}"
    assert error(robin.delete(path)) == (400, "reason_required")
    # One of them is gone already, and stays as it was.
    first = notes[0]["note_id"]
    assert robin.delete(f"/v1/notes/{first}", params={"reason": "by itself"}).status_code == 204
    assert len(notes_of(robin, done)) == len(notes) - 1
    assert robin.delete(path, params={"reason": "the shelf is full"}).status_code == 204
    assert error(robin.get(path)) == (404, "document_not_found")
    assert error(robin.get(f"{path}/notes")) == (404, "document_not_found")
    assert error(robin.delete(path, params={"reason": "again"})) == (404, "document_not_found")
    for note in notes:
        assert robin.get(f"/v1/notes/{note['note_id']}").status_code == 404
        events = robin.get(f"/v1/notes/{note['note_id']}/history").json()["events"]
        reason = "by itself" if note["note_id"] == first else "the shelf is full"
        assert [(event["event"], event["version"]) for event in events] == [("created", 1), ("deleted", 2)]
        assert (events[1]["reason"], events[1]["changed_by"]) == (reason, "robin")
    back = robin.post(f"/v1/notes/{notes[1]['note_id']}/recover", json={"reason": "needed"})
    assert back.status_code == 200, back.text


def test_document_of_many_notes_needs_a_confirmation(robin: httpx.Client) -> None:
    text = " ".join(f"{words(20)}." for _ in range(800))
    done = ingested(robin, content=text)
    notes = notes_of(robin, done)
    assert len(notes) > 25
    path = f"/v1/documents/{done['document_id']}"
    refused = robin.delete(path, params={"reason": "old"})
    assert error(refused) == (409, "confirmation_required")
    details = refused.json()["error"]["details"]
    assert details["count"] == len(notes)
    token = details["confirm_token"]
    assert robin.delete(f"/v1/notes/{notes[0]['note_id']}", params={"reason": "r"}).status_code == 204
    changed = robin.delete(path, params={"reason": "old", "confirm_token": token})
    assert error(changed) == (409, "confirmation_outdated")
    token = robin.delete(path, params={"reason": "old"}).json()["error"]["details"]["confirm_token"]
    assert robin.delete(path, params={"reason": "old", "confirm_token": token}).status_code == 204
    assert robin.get(path).status_code == 404


def test_document_delete_takes_the_facts_that_rest_on_it_alone(robin: httpx.Client) -> None:
    done = ingested(robin, content=words(600))
    first, second = [note["note_id"] for note in notes_of(robin, done)[:2]]
    told = {"subject": words(2), "predicate": "is_told_in", "object": {"value": "a book"}}
    fact = robin.post("/v1/facts", json={**told, "evidence": [first, second]}).json()["fact"]
    path = f"/v1/documents/{done['document_id']}"
    assert robin.patch(f"/v1/notes/{first}", json={"pinned": True, "reason": "keep"}).status_code == 200
    assert error(robin.delete(path, params={"reason": "old"})) == (409, "note_pinned")
    assert robin.delete(path, params={"reason": "old", "force": True}).status_code == 204
    found = robin.get("/v1/facts", params={"entity": told["subject"]}).json()["facts"]
    assert found == []
    assert robin.post(f"/v1/notes/{second}/recover", json={"reason": "needed"}).status_code == 200
    (found,) = robin.get("/v1/facts", params={"entity": told["subject"]}).json()["facts"]
    assert (found["fact_id"], found["evidence"]) == (fact["fact_id"], [second])


def test_document_list_pages_and_filters(elsewhere: httpx.Client) -> None:
    made = [ingested(elsewhere, content=words(3))["document_id"] for _ in range(3)]
    first = elsewhere.get("/v1/documents", params={"limit": 2}).json()
    second = elsewhere.get("/v1/documents", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [item["document_id"] for item in first["documents"] + second["documents"]] == made[::-1]
    assert second["next_cursor"] is None
    assert len(elsewhere.get("/v1/documents", params={"status": "done"}).json()["documents"]) == 3
    assert elsewhere.get("/v1/documents", params={"status": "failed"}).json()["documents"] == []
    assert elsewhere.get("/v1/documents", params={"source_type": "pdf"}).json()["documents"] == []
    assert error(elsewhere.get("/v1/documents", params={"status": "lost"})) == (400, "invalid_request")


def test_document_isolation_between_tenants_agents_and_projects(
    robin: httpx.Client, wren: httpx.Client, rival: httpx.Client, elsewhere: httpx.Client, admin: httpx.Client
) -> None:
    shared, private = ingested(robin, content=words(4)), ingested(robin, content=words(4), scope="agent_private")
    assert read(wren, shared)["status"] == "done"
    assert len(notes_of(wren, shared)) == 1
    (note,) = notes_of(robin, private)
    assert note["scope"] == "agent_private"
    strangers = [(rival, shared), (elsewhere, shared), (rival, private), (elsewhere, private), (wren, private)]
    for stranger, document in [*strangers, (admin, private)]:
        path = f"/v1/documents/{document['document_id']}"
        assert error(stranger.get(path)) == (404, "document_not_found")
        assert error(stranger.get(f"{path}/notes")) == (404, "document_not_found")
        assert error(stranger.delete(path, params={"reason": "x"})) == (404, "document_not_found")
        assert error(stranger.post(f"{path}/retry")) == (404, "document_not_found")
        listed = stranger.get("/v1/documents", params={"limit": 200}).json()["documents"]
        assert document["document_id"] not in [item["document_id"] for item in listed]
    assert robin.get(f"/v1/documents/{private['document_id']}").status_code == 200


def test_document_in_a_garden_is_for_its_members(robin: httpx.Client, wren: httpx.Client) -> None:
    made = robin.post("/v1/gardens", json={"slug": f"g{uuid4().hex[:8]}", "name": "G", "scope": "team"})
    garden = made.json()["garden"]["garden_id"]
    assert error(wren.post("/v1/documents", json={"content": "x", "garden_id": garden})) == (403, "garden_forbidden")
    done = ingested(robin, content=words(600), garden_id=garden)
    notes = notes_of(robin, done)
    assert len(notes) > 3
    assert {note["garden_id"] for note in notes} == {garden}
    assert error(wren.get(f"/v1/documents/{done['document_id']}")) == (404, "document_not_found")
    robin.put(f"/v1/gardens/{garden}/members/wren", json={"role": "reader"})
    assert read(wren, done)["status"] == "done"
    path = f"/v1/documents/{done['document_id']}"
    assert error(wren.delete(path, params={"reason": "x"})) == (403, "garden_forbidden")
    assert [item["document_id"] for item in robin.get("/v1/documents", params={"garden": garden}).json()["documents"]]
    assert robin.delete(path, params={"reason": "over"}).status_code == 204


def test_document_needs_the_scopes_of_notes(tenancy: Any, keys: dict[str, str], as_key: Callable[..., Any]) -> None:
    reader = as_key(tenancy.key("acme", agent_id="robin", scopes=["notes:read"]))
    assert error(reader.post("/v1/documents", json={"content": "x"}))[0] == 403
    assert reader.get("/v1/documents").status_code == 200


@pytest.mark.parametrize(
    ("name", "title", "said"),
    [
        ("page", "A page of the web", "The heron stands still."),
        ("markdown", "The title of it", "Some words."),
        ("latin", None, "Café au lait"),
        ("packed", "A page of the web", "The heron stands still."),
        ("untyped", "A page of the web", "The heron stands still."),
        ("hop-5", "A page of the web", "The heron stands still."),
    ],
)
def test_document_from_a_url(robin: httpx.Client, web: Web, name: str, title: str | None, said: str) -> None:
    done = ingested(robin, source_type="url", url=f"{web.url}/{name}?{uuid4().hex}#part")
    assert done["title"] == title
    assert "#" not in done["source_url"]
    assert done["content_bytes"] > 10
    (note,) = notes_of(robin, done)
    assert said in note["content"]
    assert note["tags"] == ([title] if title else [])


def test_document_url_keeps_the_title_it_was_given_and_is_deduplicated(robin: httpx.Client, web: Web) -> None:
    url = f"{web.url}/page?{uuid4().hex}"
    done = ingested(robin, url=url, title="Mine")
    assert done["title"] == "Mine"
    again = robin.post("/v1/documents", json={"url": url})
    assert (again.status_code, again.json()["document"]["document_id"]) == (200, done["document_id"])
    sent = [headers for path, headers in web.asked if path.endswith(url.rpartition("/")[2])]
    assert len(sent) == 1
    assert sent[0]["host"] == web.url.removeprefix("http://")
    assert not {"authorization", "cookie"} & sent[0].keys()


def test_document_that_failed_can_be_tried_again(robin: httpx.Client) -> None:
    body = {"source_type": "pdf", "content_base64": base64.b64encode(b"garbage " + uuid4().bytes).decode()}
    made = post(robin, **body)
    failed = until_ended(robin, made)
    assert failed["status"] == "failed"
    assert failed["error"].startswith("document_unreadable: ")
    job = robin.get(f"/v1/jobs/{failed['job_id']}").json()
    assert (job["status"], job["attempts"]) == ("failed", 1)
    retried = robin.post(f"/v1/documents/{made['document_id']}/retry")
    assert retried.status_code == 200, retried.text
    assert retried.json()["document"]["status"] == "queued"
    assert retried.json()["job_id"] != failed["job_id"]
    assert until_ended(robin, made)["status"] == "failed"
    again = robin.post("/v1/documents", json=body)
    assert (again.status_code, again.json()["document"]["document_id"]) == (200, made["document_id"])
    assert until_ended(robin, made)["status"] == "failed"
    # The job itself can be tried again too.
    last = read(robin, made)["job_id"]
    assert robin.post(f"/v1/jobs/{last}/retry").status_code == 200
    assert until_ended(robin, made)["status"] == "failed"
    done = ingested(robin, content=words(3))
    assert error(robin.post(f"/v1/documents/{done['document_id']}/retry")) == (409, "document_not_failed")
