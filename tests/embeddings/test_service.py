"""The real service, the real worker and the model that needs no network, beside each other."""

import re
import time
from collections.abc import Callable
from typing import Any

import httpx
import psycopg
import pytest

from tests.conftest import TestDatabase
from tests.erasure.shared import revoke, tombstone, until_erased
from tests.facts.shared import fact, new, note
from tests.service import RunningService, free_port, palimpsest

pytestmark = pytest.mark.usefixtures("worker")


def until(done: Callable[[], bool], *, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not after {seconds} s"
        time.sleep(0.05)


class Looking:
    """At what is stored, past the service."""

    def __init__(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        self._connection = connection

    def vector(self, owner_id: str) -> dict[str, Any] | None:
        return self._connection.execute("SELECT * FROM embeddings WHERE owner_id = %s", (owner_id,)).fetchone()

    def waiting(self) -> int:
        row = self._connection.execute("SELECT count(*) AS n FROM embedding_queue").fetchone()
        assert row is not None
        return row["n"]

    def until_embedded(self, *owners: str) -> None:
        until(lambda: all(self.vector(owner) is not None for owner in owners))


@pytest.fixture
def looking(superuser: psycopg.Connection[dict[str, Any]]) -> Looking:
    return Looking(superuser)


def test_what_is_written_has_a_vector_within_seconds(
    robin: httpx.Client,
    rival: httpx.Client,
    looking: Looking,
    superuser: psycopg.Connection[dict[str, Any]],
) -> None:
    tea = note(robin, content="She drinks a cup of green tea every morning.", author="Alice")
    bus = note(robin, content="The bus to the airport leaves at nine.", author="Bob")
    known = fact(robin, new("Alice"), "prefers", "green tea for breakfast")["fact_id"]
    theirs = note(rival, content="She drinks tea.")
    looking.until_embedded(tea, bus, known, theirs)
    row = looking.vector(theirs)
    assert row is not None
    assert row["tenant_id"] == "rival"
    near, far = (
        superuser.execute(
            "SELECT a.vector <#> b.vector AS n FROM embeddings a, embeddings b "
            "WHERE a.owner_id = %s AND b.owner_id = %s",
            (other, known),
        ).fetchall()
        for other in (tea, bus)
    )
    assert near[0]["n"] < far[0]["n"] - 0.2, "the model tells texts apart by what they mean"


def test_a_tombstone_hides_vectors_and_revoking_brings_them_back(
    robin: httpx.Client,
    admin: httpx.Client,
    looking: Looking,
) -> None:
    name = new("Zebulon")
    told = note(robin, content=f"{name} told me a story.")
    known = fact(robin, name, "tells", "stories", evidence=[told])["fact_id"]
    looking.until_embedded(told, known)
    made = tombstone(admin, name)
    assert looking.vector(known) is None
    assert looking.vector(told) is None
    revoke(admin, made)
    looking.until_embedded(told, known)
    assert looking.vector(known)["suppression"] == 0  # type: ignore[index]


def test_erasure_removes_vectors_and_what_waits_to_become_one(
    robin: httpx.Client,
    admin: httpx.Client,
    looking: Looking,
    superuser: psycopg.Connection[dict[str, Any]],
) -> None:
    name = new("Zebulon")
    told = note(robin, content=f"{name} told me a secret.")
    known = fact(robin, name, "tells", "secrets", evidence=[told])["fact_id"]
    looking.until_embedded(told, known)
    superuser.execute(
        "INSERT INTO embedding_queue (tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at) "
        "VALUES ('acme', 'default', 'fact', %s, 1, now(), now() + interval '1 hour')",
        (known,),
    )
    receipt = until_erased(admin, tombstone(admin, name, erase=True))
    assert looking.vector(told) is None
    assert looking.vector(known) is None
    assert '"embeddings":' in receipt["signed"]
    left = superuser.execute("SELECT count(*) AS n FROM embedding_queue WHERE owner_id = %s", (known,)).fetchone()
    assert left == {"n": 0}


def figure(text: str, name: str) -> float:
    found = re.search(rf'^{name}{{model="local/all-MiniLM-L6-v2"}} (\S+)$', text, flags=re.MULTILINE)
    assert found is not None, text
    return float(found[1])


def test_at_emb_8_coverage_is_told_and_complete_after_the_backlog(
    robin: httpx.Client,
    client: httpx.Client,
    looking: Looking,
) -> None:
    robin.post("/v1/notes/batch", json={"notes": [{"content": new("many")} for _ in range(60)]})
    until(lambda: looking.waiting() == 0)
    until(lambda: figure(client.get("/metrics").text, "palimpsest_embedding_pending") == 0)
    text = client.get("/metrics").text
    assert figure(text, "palimpsest_embedding_coverage_ratio") >= 0.99
    assert figure(text, "palimpsest_embedding_staleness_seconds") == 0
    assert figure(text, "palimpsest_embedding_failed") == 0
    assert "acme" not in text


def test_what_waits_is_in_the_metrics(
    client: httpx.Client,
    superuser: psycopg.Connection[dict[str, Any]],
) -> None:
    superuser.execute(
        "INSERT INTO embedding_queue (tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at, "
        "attempts) SELECT 'acme', 'default', 'note', gen_random_uuid(), 1, now() - interval '90 s', "
        "now() + interval '1 h', n FROM generate_series(0, 1) n"
    )
    until(lambda: figure(client.get("/metrics").text, "palimpsest_embedding_pending") == 2)
    text = client.get("/metrics").text
    assert figure(text, "palimpsest_embedding_failed") == 1
    assert 89 <= figure(text, "palimpsest_embedding_staleness_seconds") < 130
    assert figure(text, "palimpsest_embedding_coverage_ratio") < 1
    superuser.execute("DELETE FROM embedding_queue WHERE available_at > now() + interval '30 min'")


@pytest.mark.parametrize(
    ("dimensions", "code"), [("768", "embed_dimensionality_mismatch"), ("32", "embed_dimensions_below_floor")]
)
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_other_dimensions_than_are_stored_are_refused_at_start(
    database: TestDatabase, service: RunningService, command: str, dimensions: str, code: str
) -> None:
    arguments = ["serve", "--no-worker"] if command == "serve" else ["worker"]
    ended = palimpsest(
        *arguments, DATABASE_URL=database.url("app"), PORT=str(free_port()), EMBEDDING_DIMENSIONS=dimensions
    )
    assert ended.returncode == 1
    assert "EMBEDDING_DIMENSIONS" in ended.stderr
    assert {"embed_dimensionality_mismatch": "palimpsest embeddings add", "embed_dimensions_below_floor": "64"}[
        code
    ] in ended.stderr
