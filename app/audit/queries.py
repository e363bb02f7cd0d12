"""All SQL of the audit log."""

from sqlalchemy import text

# Write one event in the transaction of the action it records.
RECORD_EVENT = text("SELECT record_event(:type, :key, CAST(:details AS jsonb))")

# Number and chain events that are not sealed yet.
SEAL_AUDIT = text("SELECT * FROM seal_audit(:limit)")

_EVENT_COLUMNS = (
    "a.sequence, a.event_id, a.event_type, a.project_id, a.key_id, a.agent_id, a.details, a.created_at, "
    "encode(a.previous_hash, 'hex') AS previous_hash, encode(a.hash, 'hex') AS hash"
)
# Sealed events in the order of the chain.
_EVENTS = """
    SELECT {columns} FROM audit_log a WHERE a.tenant_id = %(tenant)s AND a.sequence > %(sequence)s{where}
    ORDER BY a.sequence LIMIT %(limit)s"""
_FILTERS = {
    "event_type": "a.event_type = %(event_type)s",
    "after": "a.created_at > %(after)s::timestamptz",
    "before": "a.created_at < %(before)s::timestamptz",
    "before_sequence": "a.sequence < %(before_sequence)s",
}


def select_events(filters: set[str]) -> str:
    """Return the query for events with the given filters."""
    where = "".join(f" AND {_FILTERS[name]}" for name in sorted(filters))
    return _EVENTS.format(columns=_EVENT_COLUMNS, where=where)


# Events with their details as the exact text that was hashed, to verify the chain.
CHAIN = """
    SELECT a.sequence, a.event_id::text AS event_id, a.event_type, coalesce(a.project_id, '') AS project_id, a.key_id,
           a.agent_id, a.details::text AS details, a.created_at, a.previous_hash, a.hash
    FROM audit_log a WHERE a.tenant_id = %(tenant)s AND a.sequence > %(sequence)s
    ORDER BY a.sequence LIMIT %(limit)s"""
# The head of the chain, and how many events are not sealed yet.
HEAD = """
    SELECT c.sequence, c.hash,
           (SELECT count(*) FROM audit_log a WHERE a.tenant_id = %(tenant)s AND a.sequence IS NULL) AS unsealed
    FROM (SELECT 1) one LEFT JOIN audit_chains c ON c.tenant_id = %(tenant)s"""
