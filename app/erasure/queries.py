"""All SQL of the room history."""

from sqlalchemy import text

# Issues a tombstone, with all it hides.
ISSUE_TOMBSTONE = text(
    "SELECT * FROM issue_tombstone(CAST(:id AS uuid), CAST(:entity AS json), CAST(:scopes AS text[]), :reason, :hold, "
    ":erase, CAST(:erase_at AS timestamptz), :named, :key, CAST(:job AS uuid))"
)
# Revokes one, and restores what no other hides.
REVOKE_TOMBSTONE = text(
    "SELECT revoke_tombstone(CAST(:tombstone AS uuid), CAST(:id AS uuid), :reason, :key) AS refused"
)
# Destroys what a tombstone hides.
ERASE_ENTITY = text("SELECT * FROM erase_entity(CAST(:tombstone AS uuid), CAST(:job AS uuid))")
# Forgetting takes as long as it takes.
NO_TIMEOUT = text("SET LOCAL statement_timeout = 0")
# Keeps a signed receipt.
STORE_RECEIPT = text(
    "SELECT store_receipt(CAST(:receipt AS uuid), CAST(:tombstone AS uuid), :signed, :signature, :public_key, :now)"
)
# Tombstones with their revocations, newest first.
_TOMBSTONES = """
    SELECT t.tombstone_id, t.entity, t.entity_id, t.scopes, t.reason, t.created_by, t.created_at, t.legal_hold, t.erase,
           t.erase_at, t.erased_at, r.reason AS revocation_reason, r.revoked_by, r.revoked_at
    FROM tombstones t
    LEFT JOIN tombstone_revocations r ON r.tenant_id = %(tenant)s AND r.tombstone_id = t.tombstone_id
    WHERE t.tenant_id = %(tenant)s AND t.project_id = %(project)s{where}
    ORDER BY t.created_at DESC, t.tombstone_id DESC LIMIT %(limit)s"""
_TOMBSTONES_ASKED = {
    "tombstone": "t.tombstone_id = %(tombstone)s::uuid",
    "active": "(r.revoked_at IS NULL) = %(active)s",
    "after": "(t.created_at, t.tombstone_id) < (%(after)s::timestamptz, %(after_id)s::uuid)",
}


def select_tombstones(asked: set[str]) -> str:
    """The query for the filters that are given."""
    return _TOMBSTONES.format(where="".join(f" AND {_TOMBSTONES_ASKED[name]}" for name in sorted(asked)))


# The receipt of an erasure.
RECEIPT = """
    SELECT e.signed, e.signature, e.public_key FROM erasure_receipts e
    WHERE e.tenant_id = %(tenant)s AND e.tombstone_id = %(tombstone)s::uuid"""

# What a fact came from, level by level: each hash is the newest live fact of that hash the caller can see, if there is
# one. A limited lateral in each step keeps a wide graph from being read whole.
PROVENANCE = """
    WITH RECURSIVE walk(fact_id, hash, parent, kind, depth) AS (
        SELECT f.fact_id, f.fact_hash, NULL::uuid, NULL::text, 0
        FROM graph_facts f
        WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.fact_id = %(fact)s::uuid AND {seen}
        UNION
        SELECT s.fact_id, d.source_hash, w.fact_id, d.kind, w.depth + 1
        FROM walk w
        CROSS JOIN LATERAL (
            SELECT d.source_hash, d.kind FROM fact_derivations d
            WHERE d.tenant_id = %(tenant)s AND d.fact_id = w.fact_id{known_link}
            ORDER BY d.source_hash, d.kind LIMIT 201
        ) d
        LEFT JOIN LATERAL (
            SELECT f.fact_id FROM graph_facts f
            WHERE f.tenant_id = %(tenant)s AND f.fact_hash = d.source_hash AND f.project_id = %(project)s AND {seen}
            ORDER BY f.retracted_at IS NOT NULL, f.created_at DESC, f.fact_id LIMIT 1
        ) s ON true
        WHERE w.fact_id IS NOT NULL AND w.depth <= %(depth)s
    )
    SELECT fact_id, encode(hash, 'hex') AS hash, parent, kind, depth FROM walk
    ORDER BY depth, hash, parent LIMIT %(limit)s"""


def select_provenance(*, in_scope: bool, at_past: bool) -> str:
    """The walk, within a scope or at a past time where that was asked."""
    seen = ["true"]
    if in_scope:
        seen.append("f.scope = %(scope)s")
    if at_past:
        seen += [
            "f.created_at <= %(as_of)s::timestamptz",
            "(SELECT check_as_of(%(tenant)s, %(project)s, %(as_of)s::timestamptz))",
        ]
    known = " AND d.created_at <= %(as_of)s::timestamptz" if at_past else ""
    return PROVENANCE.format(seen=" AND ".join(seen), known_link=known)


_EVENT_COLUMNS = (
    "a.sequence, a.event_id, a.event_type, a.project_id, a.key_id, a.agent_id, a.details, a.created_at, "
    "encode(a.previous_hash, 'hex') AS previous_hash, encode(a.hash, 'hex') AS hash"
)
# Sealed lines of the audit log in the order of the chain.
_EVENTS = """
    SELECT {columns} FROM audit_log a WHERE a.tenant_id = %(tenant)s AND a.sequence > %(sequence)s{where}
    ORDER BY a.sequence LIMIT %(limit)s"""
_EVENTS_ASKED = {
    "event_type": "a.event_type = %(event_type)s",
    "after": "a.created_at > %(after)s::timestamptz",
    "before": "a.created_at < %(before)s::timestamptz",
    "before_sequence": "a.sequence < %(before_sequence)s",
}


def select_events(asked: set[str]) -> str:
    """The query for the filters that are given."""
    where = "".join(f" AND {_EVENTS_ASKED[name]}" for name in sorted(asked))
    return _EVENTS.format(columns=_EVENT_COLUMNS, where=where)


# The same with details as the very text that was hashed, for whoever verifies the chain.
CHAIN = """
    SELECT a.sequence, a.event_id::text AS event_id, a.event_type, coalesce(a.project_id, '') AS project_id, a.key_id,
           a.agent_id, a.details::text AS details, a.created_at, a.previous_hash, a.hash
    FROM audit_log a WHERE a.tenant_id = %(tenant)s AND a.sequence > %(sequence)s
    ORDER BY a.sequence LIMIT %(limit)s"""
HEAD = """
    SELECT c.sequence, c.hash,
           (SELECT count(*) FROM audit_log a WHERE a.tenant_id = %(tenant)s AND a.sequence IS NULL) AS unsealed
    FROM (SELECT 1) one LEFT JOIN audit_chains c ON c.tenant_id = %(tenant)s"""
