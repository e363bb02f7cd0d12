"""All SQL of conflicts."""

from sqlalchemy import text

# Conflicts both of whose facts the caller can see, newest first.
_CONFLICTS = """
    SELECT k.conflict_id, k.fact_a, k.fact_b, k.status, k.winner, k.detected_at, k.resolved_at, k.resolved_by,
           k.resolution_note,
           CASE WHEN k.status = 'open' THEN
               CASE WHEN is_preferred(a.confidence, a.created_at, b.confidence, b.created_at)
                    THEN k.fact_a ELSE k.fact_b END
           END AS preferred
    FROM fact_conflicts k
    JOIN graph_facts a ON a.tenant_id = %(tenant)s AND a.fact_id = k.fact_a
    JOIN graph_facts b ON b.tenant_id = %(tenant)s AND b.fact_id = k.fact_b
    WHERE k.tenant_id = %(tenant)s AND k.project_id = %(project)s{where}
    ORDER BY k.detected_at DESC, k.conflict_id DESC LIMIT %(limit)s"""
_FILTERS = {
    "status": "k.status = %(status)s",
    "entities": "a.subject_entity_id = ANY (%(entities)s::uuid[])",
    "conflict": "k.conflict_id = %(conflict)s::uuid",
    "after": "(k.detected_at, k.conflict_id) < (%(after)s::timestamptz, %(after_id)s::uuid)",
}
# A live fact with this value, and the subject, predicate, scope and owner of a given fact: first one of the pair in
# conflict, then the one that is valid longest.
SAME_VALUE = """
    SELECT x.fact_id, x.valid_from FROM graph_facts f
    JOIN graph_facts x ON x.tenant_id = %(tenant)s AND x.project_id = f.project_id
        AND x.subject_entity_id = f.subject_entity_id AND x.predicate_id = f.predicate_id AND x.scope = f.scope
        AND x.owner_key = f.owner_key AND x.retracted_at IS NULL AND x.object_hash = decode(%(hash)s, 'hex')
    WHERE f.tenant_id = %(tenant)s AND f.fact_id = %(fact)s::uuid
    ORDER BY x.fact_id = ANY (%(pair)s::uuid[]) DESC, x.valid_until DESC, x.valid_from DESC LIMIT 1"""
# Resolve a conflict.
RESOLVE_CONFLICT = text(
    "SELECT * FROM resolve_conflict(CAST(:conflict AS uuid), CAST(:winner AS uuid), :note, :key, :admin)"
)


def select_conflicts(filters: set[str]) -> str:
    """Return the query for conflicts with the given filters."""
    return _CONFLICTS.format(where="".join(f" AND {_FILTERS[name]}" for name in sorted(filters)))
