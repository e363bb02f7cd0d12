"""The nightly reconciliation: what fell out of step is put right, and what was redacted is told."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from app.embeddings.tasks import reconcile
from tests.embeddings.conftest import Bench

pytestmark = pytest.mark.anyio


async def reconciled(bench: Bench, **changes: Any) -> None:
    """A worker until a new reconciliation has ended and nothing waits."""
    bench.superuser.execute("DELETE FROM jobs WHERE kind = 'embed_reconcile'")
    done = "SELECT count(*) FROM jobs WHERE kind = 'embed_reconcile' AND status = 'completed'"
    async with bench.working(handlers={"embed_reconcile": reconcile}, **changes):
        await bench.until(lambda: bench.one(done) == 1)
        await bench.drained()


async def test_at_emb_6_what_has_no_vector_and_does_not_wait_is_queued_again(bench: Bench) -> None:
    await bench.notes(*(f"note {number}" for number in range(5)), scope="agent_private")
    await bench.fact("Alice", "likes", "tea")
    bench.superuser.execute("DELETE FROM embedding_queue")
    await reconciled(bench)
    assert len(bench.vectors) == 6
    assert bench.one("SELECT vectors FROM embedding_counts") == 6


async def test_what_is_gone_leaves_queue_vectors_and_counts(bench: Bench) -> None:
    kept, gone, waiting = await bench.notes("kept", "gone", "waiting")
    weak = await bench.fact("Alice", "likes", "tea")
    await bench.embed_all()
    bench.superuser.execute("UPDATE memory_notes SET deleted_at = now() WHERE note_id = %s", (gone,))
    bench.superuser.execute("UPDATE graph_facts SET confidence = 0.05 WHERE fact_id = %s", (weak,))
    bench.superuser.execute("UPDATE memory_notes SET suppression = 2 WHERE note_id = %s", (waiting,))
    bench.superuser.execute(
        "INSERT INTO embedding_queue (tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at) "
        "VALUES ('acme', 'default', 'note', %s, 1, now(), now() + interval '1 hour'), "
        "('acme', 'default', 'note', gen_random_uuid(), 77, now(), now())",
        (gone,),
    )
    bench.superuser.execute("UPDATE embedding_counts SET vectors = 1000")
    await reconciled(bench)
    assert {(str(row["owner_id"]), row["suppression"]) for row in bench.vectors} == {(kept, 0), (waiting, 2)}
    assert bench.one("SELECT vectors FROM embedding_counts") == 2


async def test_it_is_done_once_a_day(bench: Bench) -> None:
    await bench.notes("note")
    schedule = "SELECT count(*) FROM schedule_reconciliations(now() - interval '1 day')"
    assert bench.one(schedule) == 1
    assert bench.one(schedule) == 0, "it is open"
    bench.superuser.execute("UPDATE jobs SET status = 'completed', finished_at = now() WHERE kind = 'embed_reconcile'")
    assert bench.one(schedule) == 0, "it was done today"
    bench.superuser.execute("UPDATE jobs SET finished_at = now() - interval '25 hours' WHERE kind = 'embed_reconcile'")
    assert bench.one(schedule) == 1


async def test_beside_the_embedding_of_the_same_project_neither_stops_the_other(bench: Bench) -> None:
    await bench.notes(*(f"note {number}" for number in range(300)))
    await reconciled(bench, embed_batch_size=7)
    assert len(bench.vectors) == 300
    assert bench.one("SELECT vectors FROM embedding_counts") == 300
    assert len(bench.seen) == 300, "no batch was lost to a deadlock"


async def test_what_was_redacted_on_a_day_is_one_line_of_the_audit_log(bench: Bench) -> None:
    await bench.notes("my password: hunter2 and my token = abcdef", "the secret: 42", "nothing to hide")
    await bench.embed_all()
    today = datetime.now(UTC).date()
    assert bench.rows("SELECT day, redactions FROM redaction_counts") == [{"day": today, "redactions": 3}]
    await reconciled(bench)
    lines = "SELECT details FROM audit_log WHERE details ->> 'action' = 'embedding_redaction'"
    assert bench.rows(lines) == [], "the day is not over"
    bench.superuser.execute("UPDATE redaction_counts SET day = day - 1")
    await reconciled(bench)
    (line,) = bench.rows(lines)
    yesterday = (today - timedelta(days=1)).isoformat()
    assert line["details"] == {"action": "embedding_redaction", "day": yesterday, "redactions": 3}
    assert bench.rows("SELECT * FROM redaction_counts") == []
    await reconciled(bench)
    assert len(bench.rows(lines)) == 1
    assert "hunter2" not in msgspec.json.encode(bench.fake.calls).decode()
