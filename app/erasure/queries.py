"""All SQL of erasure."""

from sqlalchemy import text

# Issue a tombstone and hide everything it covers.
ISSUE_TOMBSTONE = text(
    "SELECT * FROM issue_tombstone(CAST(:id AS uuid), CAST(:entity AS json), CAST(:scopes AS text[]), :reason, :hold, "
    ":erase, :grace, :named, :key, CAST(:job AS uuid))"
)
# Revoke a tombstone and restore what no other one hides.
REVOKE_TOMBSTONE = text(
    "SELECT revoke_tombstone(CAST(:tombstone AS uuid), CAST(:id AS uuid), :reason, :key) AS refused"
)
# Destroy what a tombstone hides.
ERASE_ENTITY = text("SELECT * FROM erase_entity(CAST(:tombstone AS uuid), CAST(:job AS uuid))")
# Hiding and erasing read every note of the project, however many there are.
NO_TIMEOUT = text("SET LOCAL statement_timeout = 0")
# Store a signed receipt.
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
_FILTERS = {
    "tombstone": "t.tombstone_id = %(tombstone)s::uuid",
    "active": "(r.revoked_at IS NULL) = %(active)s",
    "after": "(t.created_at, t.tombstone_id) < (%(after)s::timestamptz, %(after_id)s::uuid)",
}


def select_tombstones(filters: set[str]) -> str:
    """Return the query for tombstones with the given filters."""
    return _TOMBSTONES.format(where="".join(f" AND {_FILTERS[name]}" for name in sorted(filters)))


# The receipt of an erasure.
RECEIPT = """
    SELECT e.signed, e.signature, e.public_key FROM erasure_receipts e
    WHERE e.tenant_id = %(tenant)s AND e.tombstone_id = %(tombstone)s::uuid"""
