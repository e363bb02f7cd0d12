"""What can go wrong while documents are read: each ends done or failed, says why, and the queue goes on."""

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.commands import ForkedProcess
from tests.documents.conftest import ingested, notes_of, post, read, until_ended, words
from tests.documents.files import bomb_pdf, make_pdf
from tests.documents.web import Web

SETTINGS = "/v1/projects/default/settings"
Superuser = psycopg.Connection[dict[str, Any]]
Start = Callable[..., ForkedProcess]


@pytest.fixture(autouse=True)
def one_attempt(admin: httpx.Client) -> Iterator[None]:
    """Chunks are small here, so that there are many, and what fails fails at once."""
    changes = {
        "document_chunk_size": 200,
        "document_chunk_overlap": 20,
        "document_max_content_bytes": 1_000_000,
        "worker_max_retries": 1,
    }
    assert admin.put(SETTINGS, json=changes).status_code == 200
    yield
    admin.put(SETTINGS, json=dict.fromkeys(changes))


def encoded(raw: bytes) -> dict[str, Any]:
    return {"source_type": "pdf", "content_base64": base64.b64encode(raw).decode()}


def until_half_way(client: httpx.Client, document: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = read(client, document)
        if found["status"] == "embedding" and found["chunks_done"] > 0:
            return found
        time.sleep(0.01)
    raise AssertionError(read(client, document))


def live_notes(superuser: Superuser, document: dict[str, Any]) -> list[int]:
    """Places of the live notes in a document's thread, looked up past the service."""
    query = "SELECT position FROM memory_notes WHERE thread_id = %s AND deleted_at IS NULL ORDER BY position"
    return [row["position"] for row in superuser.execute(query, (f"document:{document['document_id']}",))]


@pytest.fixture
def seen(superuser: Superuser) -> Iterator[None]:
    """Every change of a document, and by which transaction."""
    superuser.execute("""
        CREATE TABLE seen (document_id uuid, status text, done int, transaction bigint, at serial);
        GRANT INSERT ON seen TO palimpsest_app; GRANT USAGE ON SEQUENCE seen_at_seq TO palimpsest_app;
        CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO seen VALUES (NEW.document_id, NEW.status, NEW.chunks_done, txid_current()); RETURN NEW;
        END $$;
        CREATE TRIGGER see AFTER INSERT OR UPDATE ON documents FOR EACH ROW EXECUTE FUNCTION see()""")
    yield
    superuser.execute("DROP TRIGGER see ON documents; DROP FUNCTION see(); DROP TABLE seen")


@pytest.mark.usefixtures("seen")
def test_every_status_is_committed_on_its_own_and_counts_grow(
    robin: httpx.Client, superuser: Superuser, start_worker: Start
) -> None:
    # A table of nobody's is a drift that a worker would not start with.
    worker = start_worker(RLS_POLICY_STRICT="off")
    document = post(robin, content=words(1500))
    assert document["status"] == "queued"
    half = until_half_way(robin, document)
    assert 0 < half["chunks_done"] < half["chunks_total"]
    assert robin.get("/v1/documents", params={"status": "embedding"}).json()["documents"]
    done = until_ended(robin, document)
    rows = superuser.execute(
        "SELECT * FROM seen WHERE document_id = %s ORDER BY at", (document["document_id"],)
    ).fetchall()
    statuses = list(dict.fromkeys(row["status"] for row in rows))
    assert statuses == ["queued", "extracting", "chunking", "embedding", "indexing", "done"]
    transactions = [{row["transaction"] for row in rows if row["status"] == status} for status in statuses]
    assert sum(map(len, transactions)) == len(set().union(*transactions))
    counts = [row["done"] for row in rows]
    assert counts == sorted(counts)
    assert len(set(counts)) > 3
    assert counts[-1] == done["chunks_total"]
    worker.terminate()
    worker.wait()


def test_a_worker_killed_midway_leaves_nothing_twice_and_nothing_out(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, start_worker: Start
) -> None:
    admin.put(SETTINGS, json={"worker_max_retries": 5})
    worker = start_worker(LEASE_SECONDS="1")
    document = post(robin, content=words(1500))
    until_half_way(robin, document)
    worker.kill()
    worker.wait()
    half = read(robin, document)
    assert 0 < half["chunks_done"] < half["chunks_total"]
    assert len(live_notes(superuser, document)) == half["chunks_done"]
    worker = start_worker(LEASE_SECONDS="1")
    done = until_ended(robin, document)
    assert done["status"] == "done"
    assert live_notes(superuser, document) == list(range(done["chunks_total"]))
    assert [note["chunk_index"] for note in notes_of(robin, document)] == list(range(done["chunks_total"]))
    worker.terminate()
    worker.wait()


def test_a_document_whose_attempts_ran_out_has_failed_and_goes_on_when_tried_again(
    robin: httpx.Client, admin: httpx.Client, superuser: Superuser, start_worker: Start
) -> None:
    worker = start_worker(LEASE_SECONDS="1")
    document = post(robin, content=words(1500))
    until_half_way(robin, document)
    worker.kill()
    worker.wait()
    worker = start_worker(LEASE_SECONDS="1")
    failed = until_ended(robin, document)
    assert failed["status"] == "failed"
    assert failed["error"].startswith("lease_expired")
    assert robin.get(f"/v1/jobs/{document['job_id']}").json()["status"] == "dead"
    listed = robin.get("/v1/documents", params={"status": "failed"}).json()["documents"]
    assert document["document_id"] in [item["document_id"] for item in listed]
    # With other chunks than before: those that no longer fit give way.
    admin.put(SETTINGS, json={"document_chunk_size": 300})
    assert robin.post(f"/v1/documents/{document['document_id']}/retry").status_code == 200
    done = until_ended(robin, document)
    assert done["status"] == "done"
    assert done["error"] is None
    assert len(notes_of(robin, document)) == done["chunks_total"] == len(live_notes(superuser, document))
    assert all(len(note["content"]) > 250 for note in notes_of(robin, document)[:-1])
    worker.terminate()
    worker.wait()


def test_deleted_while_it_is_read_leaves_no_notes(
    robin: httpx.Client, superuser: Superuser, start_worker: Start
) -> None:
    worker = start_worker()
    # So long that nobody could read it to its end between two requests.
    document = post(robin, content=words(9000))
    until_half_way(robin, document)
    path = f"/v1/documents/{document['document_id']}"
    assert robin.delete(path, params={"reason": "changed my mind"}).status_code == 204
    deadline = time.monotonic() + 60
    while (job := robin.get(f"/v1/jobs/{document['job_id']}").json())["status"] not in ("completed", "failed"):
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    assert (job["status"], job["result"]["outcome"]) == ("completed", "gone")
    assert live_notes(superuser, document) == []
    assert robin.get(path).status_code == 404
    worker.terminate()
    worker.wait()


def test_cancelled_it_has_failed(robin: httpx.Client) -> None:
    document = post(robin, content=words(3))
    assert robin.post(f"/v1/jobs/{document['job_id']}/cancel").status_code == 200
    assert read(robin, document)["status"] == "failed"


@pytest.mark.usefixtures("worker")
def test_poison_is_reported_and_the_queue_goes_on(robin: httpx.Client, admin: httpx.Client, web: Web) -> None:
    # One attempt each: only the slow page uses up the time of a fetch, however busy the machine is.
    admin.put(SETTINGS, json={"worker_max_retries": 1})
    pages = {
        "huge": "document_too_large", "forever": "document_too_large", "bomb": "document_too_large",
        "slowly": "document_fetch_timeout", "inside": "document_redirect_refused", "loop": "document_redirect_refused",
        "image": "document_type_unsupported", "broken": "document_fetch_failed", "missing": "document_fetch_failed",
    }  # fmt: skip
    bodies: list[tuple[dict[str, Any], str]] = [
        ({"url": f"{web.url}/{name}?{uuid4().hex}"}, code) for name, code in pages.items()
    ]
    bodies += [
        ({"url": f"http://localhost:{web.server_port}/page?{uuid4().hex}"}, "document_fetch_refused"),
        (encoded(b"garbage" + uuid4().bytes), "document_unreadable"),
        (encoded(make_pdf(uuid4().hex)[:300]), "document_unreadable"),
        (encoded(make_pdf("")), "document_empty"),
        ({"source_type": "html", "content": f"<script>{uuid4().hex}</script>"}, "document_empty"),
        (encoded(bomb_pdf(4_000_000)), "document_"),
    ]
    poison = [(post(robin, **body), code) for body, code in bodies]
    admin.put(SETTINGS, json={"worker_max_retries": None})
    good = ingested(robin, **encoded(make_pdf(f"good {uuid4().hex}", "second page", title="Good")))
    assert good["title"] == "Good"
    for document, code in poison:
        failed = until_ended(robin, document, seconds=60)
        assert failed["status"] == "failed", (failed, code)
        assert failed["error"].startswith(code), failed
        assert "127.0.0" not in failed["error"]
        assert notes_of(robin, document) == []
        assert robin.get(f"/v1/jobs/{document['job_id']}").json()["status"] in ("failed", "dead")


@pytest.mark.usefixtures("worker")
def test_a_server_in_trouble_is_asked_again(robin: httpx.Client, admin: httpx.Client, web: Web) -> None:
    admin.put(SETTINGS, json={"worker_max_retries": 2})
    document = post(robin, url=f"{web.url}/flaky-{uuid4().hex}")
    deadline = time.monotonic() + 60
    while (found := read(robin, document))["error"] is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (found["status"], found["error"]) == (
        "queued",
        "document_fetch_failed: The server responded with status 503.",
    )
    assert until_ended(robin, document)["error"] is None


@pytest.mark.usefixtures("worker")
def test_a_page_that_failed_is_fetched_anew_when_it_is_tried_again(robin: httpx.Client, web: Web) -> None:
    document = post(robin, url=f"{web.url}/changing-{uuid4().hex}")
    assert until_ended(robin, document)["error"].startswith("document_empty")
    assert robin.post(f"/v1/documents/{document['document_id']}/retry").status_code == 200
    assert until_ended(robin, document)["title"] == "A page of the web"
