"""Writing the audit log: one event for an action, in its transaction, with ids and never content."""

from typing import Any, Literal

import msgspec

from app.audit import queries
from app.db.database import Session

EventType = Literal[
    "fact_write", "fact_read", "key_issue", "key_revoke", "key_rotation", "quarantine_admit", "quarantine_release",
    "quota_breach", "admin_action", "tombstone_issued", "tombstone_revoked", "rtbf_legal_hold_issued",
    "erasure_completed", "object_write", "note_write", "document_write", "garden_write", "review_decide", "job_control",
]  # fmt: skip


async def record(session: Session, event: EventType, *, key_id: str, **details: Any) -> None:
    """Write one event about the tenant and project of the session's scope."""
    encoded = msgspec.json.encode(details).decode()
    await session.execute(queries.RECORD_EVENT, {"type": event, "key": key_id, "details": encoded})
