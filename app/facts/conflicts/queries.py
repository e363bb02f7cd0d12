"""All SQL of conflicts."""

from sqlalchemy import text

from app.facts.entities.queries import AS_OF_ALLOWED

# Conflicts both of whose facts the caller can see, newest first, with the state they had at a time (NULL: have now).
_CONFLICTS = """
    SELECT k.conflict_id, k.fact_a, k.fact_b, CASE WHEN k.open THEN 'open' ELSE 'resolved' END AS status,
           k.detected_at,
           CASE WHEN NOT k.open THEN k.winner END AS winner,
           CASE WHEN NOT k.open THEN k.resolved_at END AS resolved_at,
           CASE WHEN NOT k.open THEN k.resolved_by END AS resolved_by,
           CASE WHEN NOT k.open THEN k.resolution_note END AS resolution_note,
           CASE WHEN k.open THEN
               CASE WHEN is_preferred(
                        past_confidence(a.fact_id, a.confidence, a.weighed_at, a.retracted_at, %(tenant)s,
                                        %(as_of)s::timestamptz), a.created_at,
                        past_confidence(b.fact_id, b.confidence, b.weighed_at, b.retracted_at, %(tenant)s,
                                        %(as_of)s::timestamptz), b.created_at)
                    THEN k.fact_a ELSE k.fact_b END
           END AS preferred
    FROM (SELECT c.*, is_open_conflict(c.status, c.detected_at, c.resolved_at, %(as_of)s::timestamptz) AS open
          FROM fact_conflicts c) k
    JOIN graph_facts a ON a.tenant_id = %(tenant)s AND a.fact_id = k.fact_a
    JOIN graph_facts b ON b.tenant_id = %(tenant)s AND b.fact_id = k.fact_b
    WHERE k.tenant_id = %(tenant)s AND k.project_id = %(project)s{where}
    ORDER BY k.detected_at DESC, k.conflict_id DESC LIMIT %(limit)s"""
_FILTERS = {
    "as_of": f"k.detected_at <= %(as_of)s::timestamptz AND {AS_OF_ALLOWED}",
    "status": "k.open = (%(status)s = 'open')",
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
